"""What a search reads: numbers of devices, and devices in an order."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from libs.common.store.mongo import Database
from services.device.members.entity import DEVICE_FIELDS, Document, EntityThing, of_thing
from services.device.members.models import ModelKey, model_of

_FIELDS = dict.fromkeys(DEVICE_FIELDS, 1)
_MODEL = ("model", "tslVersion", "shape")
BATCH = 1000
"""Most devices of one answer of MongoDB."""

Condition = dict[str, Any]
"""A MongoDB condition on devices or things."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Devices in order: those that meet all `conditions`, without the first `skip`."""

    conditions: list[Condition]
    order: list[tuple[str, int]]
    skip: int
    expected: int
    """How many will probably be read."""
    hint: str | None


class EntitySearchStore:
    """Reads devices and other things of a tenant."""

    def __init__(self, database: Database) -> None:
        self._devices = database["devices"]
        self._things = database["things"]

    async def count(self, tenant: str, parts: Sequence[Sequence[Condition]]) -> Counter[ModelKey]:
        """Devices by model, over the sum of `parts`, each of which is a list of conditions."""
        found: Counter[ModelKey] = Counter()
        for counts in await asyncio.gather(*(self._count(tenant, part) for part in parts)):
            found.update(counts)
        return found

    async def _count(self, tenant: str, conditions: Sequence[Condition]) -> Counter[ModelKey]:
        few = any("_id" in condition for condition in conditions)
        options: dict[str, Any] = {} if few else {"hint": "model"}
        groups = await self._devices.aggregate(
            [
                {"$match": _all_of(tenant, conditions)},
                {"$group": {"_id": {one: f"${one}" for one in _MODEL}, "devices": {"$sum": 1}}},
            ],
            **options,
        )
        found: Counter[ModelKey] = Counter()
        async for group in groups:
            found[model_of(group["_id"])] += group["devices"]
        return found

    async def integrations(self, tenant: str) -> list[str]:
        """The integrations that devices of the tenant belong to."""
        return list(await self._devices.distinct("integration", {"tenant": tenant}))

    async def walk(self, tenant: str, walk: Walk) -> AsyncGenerator[Document, None]:
        """Devices in order, as many as are asked for."""
        options: dict[str, Any] = {"hint": walk.hint} if walk.hint else {}
        cursor = self._devices.find(
            _all_of(tenant, walk.conditions),
            _FIELDS,
            sort=walk.order,
            skip=walk.skip,
            batch_size=max(min(walk.expected + 1, BATCH), 2),
            **options,
        )
        try:
            async for document in cursor:
                yield document
        finally:
            await cursor.close()

    async def others(self, tenant: str, condition: Condition) -> list[EntityThing]:
        """The things that are no devices."""
        cursor = self._things.find({"tenant": tenant, **condition})
        return [of_thing(document) async for document in cursor]


def _all_of(tenant: str, conditions: Sequence[Condition]) -> Condition:
    """One condition of many; the plain one that indexes know best comes first."""
    given = [condition for condition in conditions if condition]
    return {"tenant": tenant, **({"$and": given} if given else {})}


def of_models(models: Collection[ModelKey]) -> Condition:
    """The condition that a device is of one of these models."""
    return {
        "$or": [
            {"model": model, "tslVersion": version}
            if version
            else {"model": model, "shape": shape or None}
            for model, version, shape in models
        ]
    }
