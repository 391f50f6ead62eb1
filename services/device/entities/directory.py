"""Finds entities by id and by key."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from libs.common.store.mongo import Database
from libs.common.things import SYSTEM, KeyParts, number_of, split_key, thing_of
from services.device.entities.models import Models
from services.device.entities.things import Entity, EntityThing, of_device, of_thing
from services.device.things.model import ListedDevice
from services.device.things.store import DeviceStore


class EntityDirectory:
    """Entities of a tenant; looks at no grants."""

    def __init__(self, database: Database, devices: DeviceStore, models: Models) -> None:
        self._devices = devices
        self._things = database["things"]
        self._models = models

    async def by_ids(self, tenant: str, ids: Sequence[int]) -> dict[int, Entity]:
        """The entities of `ids`; what is unknown is missing."""
        things = await self.things(tenant, {thing_of(one) for one in ids})
        found: dict[int, Entity] = {}
        for one in ids:
            thing = things.get(thing_of(one))
            member = thing.members.by_number.get(number_of(one)) if thing else None
            if thing and member:
                found[one] = Entity(thing, member)
        return found

    async def by_keys(self, tenant: str, keys: Iterable[str]) -> dict[str, Entity]:
        """The entities of `keys`; what is unknown is missing."""
        parts = {key: split for key in keys if (split := split_key(key)) is not None}
        devices = await self._devices_with(tenant, parts.values())
        others = await self._others_with(tenant, parts.values())
        found: dict[str, Entity] = {}
        for key, split in parts.items():
            if split.device is not None:
                thing, path = devices.get((split.integration, split.device)), split.path
            else:
                identifier, path = _own(split)
                thing = others.get((split.integration, identifier))
            member = thing.members.by_path.get(path) if thing else None
            if thing and member:
                found[key] = Entity(thing, member)
        return found

    async def things(self, tenant: str, ids: Iterable[int]) -> dict[int, EntityThing]:
        """The things of `ids`; what is unknown is missing."""
        wanted = list(ids)
        devices = await self._devices.listed(tenant, wanted)
        found = {thing.id: thing for thing in await self.of_devices(tenant, devices)}
        query = {"_id": {"$in": wanted}, "tenant": tenant}
        async for document in self._things.find(query):
            found[document["_id"]] = of_thing(document)
        return found

    async def of_devices(self, tenant: str, devices: Sequence[ListedDevice]) -> list[EntityThing]:
        """The things that devices of a tenant are."""
        models = await self._models.of(tenant, (device.model_key for device in devices))
        return [of_device(device, models[device.model_key]) for device in devices]

    async def _devices_with(
        self, tenant: str, keys: Iterable[KeyParts]
    ) -> dict[tuple[str, str], EntityThing]:
        wanted: dict[str, set[str]] = defaultdict(set)
        for split in keys:
            if split.device is not None:
                wanted[split.integration].add(split.device)
        devices: list[ListedDevice] = []
        for integration, identifiers in wanted.items():
            devices += await self._devices.listed_with(tenant, integration, identifiers)
        things = await self.of_devices(tenant, devices)
        return {(thing.integration, thing.identifier): thing for thing in things}

    async def _others_with(
        self, tenant: str, keys: Iterable[KeyParts]
    ) -> dict[tuple[str, str], EntityThing]:
        wanted: dict[str, set[str]] = defaultdict(set)
        for split in keys:
            if split.device is None:
                wanted[split.integration].add(_own(split)[0])
        found: dict[tuple[str, str], EntityThing] = {}
        for integration, identifiers in wanted.items():
            query = _with(tenant, integration, identifiers)
            async for document in self._things.find(query):
                found[integration, document["identifier"]] = of_thing(document)
        return found


def _with(tenant: str, integration: str, identifiers: Iterable[str]) -> dict[str, Any]:
    some = {"$in": list(identifiers)}
    return {"tenant": tenant, "integration": integration, "identifier": some}


def _own(split: KeyParts) -> tuple[str, str]:
    """Identifier of the thing and path below it, of a key that is no device's."""
    if split.integration != SYSTEM:
        return "", split.path
    identifier, _, path = split.path.partition(".")
    return identifier, path
