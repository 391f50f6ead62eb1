"""Finds entities by id and by key."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from libs.common.store.mongo import Document
from libs.common.things import SYSTEM, KeyParts, number_of, split_key, thing_of
from services.device.members.entity import Entity, EntityThing, of_device, of_thing
from services.device.members.models import Models
from services.device.things import Thing, ThingDirectory
from services.device.things.conditions import Condition
from services.device.things.model import ListedDevice
from services.device.things.store import DeviceStore

Things = dict[tuple[str, str], EntityThing]
"""By integration and identifier."""


class EntityDirectory:
    """Entities of a tenant; looks at no grants."""

    def __init__(self, devices: DeviceStore, things: ThingDirectory, models: Models) -> None:
        self._devices = devices
        self._things = things
        self._models = models

    async def by_ids(self, tenant: str, ids: Sequence[int]) -> dict[int, Entity]:
        """The entities of `ids`; what is unknown is missing."""
        things = await self.things(tenant, {thing_of(entity_id) for entity_id in ids})
        found: dict[int, Entity] = {}
        for entity_id in ids:
            thing = things.get(thing_of(entity_id))
            member = thing.numbered(number_of(entity_id)) if thing else None
            if thing and member:
                found[entity_id] = Entity(thing, member)
        return found

    async def by_keys(
        self, tenant: str, keys: Iterable[str], *, records: bool = False
    ) -> dict[str, Entity]:
        """The entities of `keys`; what is unknown is missing.

        With `records` each thing has what reports and commands need of it.
        """
        parts = {key: split for key in keys if (split := split_key(key)) is not None}
        wanted: dict[bool, dict[str, set[str]]] = {True: defaultdict(set), False: defaultdict(set)}
        for split in parts.values():
            identifier, _ = _place(split)
            wanted[split.device is not None][split.integration].add(identifier)
        things = {
            True: await self._devices_with(tenant, wanted[True], records=records),
            False: await self._others_with(tenant, wanted[False], records=records),
        }
        found: dict[str, Entity] = {}
        for key, split in parts.items():
            identifier, path = _place(split)
            thing = things[split.device is not None].get((split.integration, identifier))
            member = thing.at(path) if thing else None
            if thing and member:
                found[key] = Entity(thing, member)
        return found

    async def things(self, tenant: str, ids: Iterable[int]) -> dict[int, EntityThing]:
        """The things of `ids`; what is unknown is missing."""
        wanted = list(ids)
        devices = await self._devices.lists.listed(tenant, wanted)
        things = await self.of_devices(tenant, devices)
        things += await self.others(tenant, {"_id": {"$in": wanted}})
        return {thing.id: thing for thing in things}

    async def others(self, tenant: str, condition: Condition) -> list[EntityThing]:
        """The things that are no devices and meet a condition."""
        found = await self._things.own.find({"tenant": tenant, **condition})
        return list(map(of_thing, found))

    async def of_devices(
        self, tenant: str, devices: Sequence[ListedDevice], loaded: Sequence[Thing] = ()
    ) -> list[EntityThing]:
        """The things that devices of a tenant are; `loaded` are their records, if wanted."""
        tsls = {(thing.tenant, thing.model, thing.tsl_version): thing.tsl for thing in loaded}
        models = await self._models.of(tenant, (device.model_key for device in devices), tsls)
        records: Sequence[Thing | None] = loaded or [None] * len(devices)
        return [
            of_device(device, models[device.model_key], record)
            for device, record in zip(devices, records, strict=True)
        ]

    async def _devices_with(
        self, tenant: str, wanted: dict[str, set[str]], *, records: bool
    ) -> Things:
        devices: list[ListedDevice] = []
        loaded: list[Thing] = []
        for integration, identifiers in wanted.items():
            if records:
                whole = await self._devices.with_identifiers(tenant, integration, identifiers)
                devices += whole
                loaded += await self._things.things(whole)
            else:
                devices += await self._devices.lists.listed_with(tenant, integration, identifiers)
        things = await self.of_devices(tenant, devices, loaded)
        return {(thing.integration, thing.identifier): thing for thing in things}

    async def _others_with(
        self, tenant: str, wanted: dict[str, set[str]], *, records: bool
    ) -> Things:
        documents: list[Document] = []
        for integration, identifiers in wanted.items():
            some = {"$in": list(identifiers)}
            query = {"tenant": tenant, "integration": integration, "identifier": some}
            documents += await self._things.own.find(query)
        return {
            (document["integration"], document["identifier"]): of_thing(
                document, self._things.own_thing(document) if records else None
            )
            for document in documents
            if "hash" in document or not records
        }


def _place(split: KeyParts) -> tuple[str, str]:
    """Identifier of the thing, and the path below it."""
    if split.device is not None:
        return split.device, split.path
    if split.integration != SYSTEM:
        return "", split.path
    identifier, _, path = split.path.partition(".")
    return identifier, path
