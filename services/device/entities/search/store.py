"""What a search reads: numbers of devices, and devices in an order."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence

from libs.common.store.mongo import Database
from services.device.entities.search.walk import Condition, Walk
from services.device.entities.things import EntityThing, of_thing
from services.device.things.model import ListedDevice, ModelKey
from services.device.things.store import DeviceStore


class EntitySearchStore:
    """Reads devices and other things of a tenant."""

    def __init__(self, database: Database, devices: DeviceStore) -> None:
        self._devices = devices
        self._things = database["things"]

    async def count(self, tenant: str, parts: Sequence[Sequence[Condition]]) -> Counter[ModelKey]:
        """Devices by model, over the sum of `parts`, each of which is a list of conditions."""
        found: Counter[ModelKey] = Counter()
        for counts in await asyncio.gather(
            *(self._devices.count_models(tenant, part) for part in parts)
        ):
            found.update(counts)
        return found

    async def integrations(self, tenant: str) -> list[str]:
        """The integrations that devices of the tenant belong to."""
        return await self._devices.integrations(tenant)

    def walk(self, tenant: str, walk: Walk) -> AsyncGenerator[ListedDevice, None]:
        """Devices in order, as many as are asked for."""
        return self._devices.walk(
            tenant,
            walk.conditions,
            walk.order,
            skip=walk.skip,
            expected=walk.expected,
            hint=walk.hint,
        )

    async def others(self, tenant: str, condition: Condition) -> list[EntityThing]:
        """The things that are no devices."""
        cursor = self._things.find({"tenant": tenant, **condition})
        return [of_thing(document) async for document in cursor]
