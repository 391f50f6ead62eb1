"""Finds entities by id and by key."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from libs.common.store.mongo import Database, Document
from libs.common.things import SYSTEM, KeyParts, number_of, own_sn, split_key, thing_of
from services.device.members.entity import (
    DEVICE_FIELDS,
    Entity,
    EntityThing,
    of_device,
    of_thing,
)
from services.device.members.models import Models, model_of
from services.device.things import Thing, ThingDirectory

_FIELDS = dict.fromkeys(DEVICE_FIELDS, 1)

Things = dict[tuple[str, str], EntityThing]
"""By integration and identifier."""


class EntityDirectory:
    """Entities of a tenant; looks at no grants."""

    def __init__(self, database: Database, models: Models, things: ThingDirectory) -> None:
        self._devices = database["devices"]
        self._own = database["things"]
        self._models = models
        self._things = things

    async def by_ids(self, tenant: str, ids: Sequence[int]) -> dict[int, Entity]:
        """The entities of `ids`; what is unknown is missing."""
        things = await self.things(tenant, {thing_of(entity_id) for entity_id in ids})
        found: dict[int, Entity] = {}
        for entity_id in ids:
            thing = things.get(thing_of(entity_id))
            member = thing.members.by_number.get(number_of(entity_id)) if thing else None
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
        devices = await self._devices_with(tenant, parts.values(), records=records)
        others = await self._others_with(tenant, parts.values(), records=records)
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
        query = {"_id": {"$in": list(ids)}, "tenant": tenant}
        devices = await self._devices.find(query, _FIELDS).to_list(None)
        found = {thing.id: thing for thing in await self.of_devices(tenant, devices)}
        async for document in self._own.find(query):
            found[document["_id"]] = of_thing(document)
        return found

    async def of_devices(self, tenant: str, devices: Sequence[Document]) -> list[EntityThing]:
        """The things that devices of a tenant are."""
        models = await self._models.of(tenant, map(model_of, devices))
        return [of_device(device, models[model_of(device)]) for device in devices]

    async def _devices_with(
        self, tenant: str, keys: Iterable[KeyParts], *, records: bool
    ) -> Things:
        wanted: dict[str, set[str]] = defaultdict(set)
        for split in keys:
            if split.device is not None:
                wanted[split.integration].add(split.device)
        documents: list[Document] = []
        for integration, identifiers in wanted.items():
            query = _with(tenant, integration, identifiers)
            fields = None if records else _FIELDS
            documents += await self._devices.find(query, fields).to_list(None)
        loaded: Sequence[Thing | None] = [None] * len(documents)
        if records:
            loaded = await self._things.things(documents)
        models = await self._models.of(tenant, map(model_of, documents))
        things = [
            of_device(document, models[model_of(document)], record)
            for document, record in zip(documents, loaded, strict=True)
        ]
        return {(thing.integration, thing.identifier): thing for thing in things}

    async def _others_with(self, tenant: str, keys: Iterable[KeyParts], *, records: bool) -> Things:
        wanted: dict[str, set[str]] = defaultdict(set)
        for split in keys:
            if split.device is None:
                wanted[split.integration].add(_own(split)[0])
        documents: list[Document] = []
        for integration, identifiers in wanted.items():
            query = _with(tenant, integration, identifiers)
            documents += await self._own.find(query).to_list(None)
        sns = [own_sn(document["_id"]) for document in documents]
        loaded = await self._things.by_sn(sns) if records and sns else {}
        return {
            (document["integration"], document["identifier"]): of_thing(document, loaded.get(sn))
            for document, sn in zip(documents, sns, strict=True)
            if sn in loaded or not records
        }


def _with(tenant: str, integration: str, identifiers: Iterable[str]) -> dict[str, Any]:
    some = {"$in": list(identifiers)}
    return {"tenant": tenant, "integration": integration, "identifier": some}


def _own(split: KeyParts) -> tuple[str, str]:
    """Identifier of the thing and path below it, of a key that is no device's."""
    if split.integration != SYSTEM:
        return "", split.path
    identifier, _, path = split.path.partition(".")
    return identifier, path
