"""Finds entities by id and by key."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from libs.common.store.mongo import Database, Document
from libs.common.things import GENERIC, SYSTEM, KeyParts, number_of, split_key, thing_of
from libs.common.tsl import Tsl
from services.device.members.entity import Entity, EntityThing, of_device, of_thing
from services.device.members.members import MemberSet, marks_of, members_of
from services.device.members.shapes import ShapeStore, members_of_shape
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory
from services.device.things.model import ListedDevice, ModelKey, Thing
from services.device.things.specifications import MemberRegistry, TslKey, Tsls, owner_of
from services.device.things.thing_store import names_of
from services.device.things.visibility import Condition

KEPT = 100_000
"""Most members that are kept, of all models together; one takes half a KiB."""

_NONE = MemberSet(())


class Models:
    """Gives members of models; those of a version are read once, for as long as it stays."""

    def __init__(self, database: Database, tsls: Tsls) -> None:
        self._tsls = tsls
        self._shapes = ShapeStore(database)
        self._registry = MemberRegistry(database)
        self._known: OrderedDict[tuple[str, str, str | Tsl], MemberSet] = OrderedDict()
        """By tenant, product and TSL; those of a shape without a tenant, by its name."""
        self._size = 0

    async def of(
        self, tenant: str, keys: Iterable[ModelKey], known: Mapping[TslKey, Tsl] | None = None
    ) -> dict[ModelKey, MemberSet]:
        """The members of each model; none for what is gone.

        `known` are the TSLs of all versions among them, when they have just been looked up.
        """
        wanted = set(keys)
        shapes = await self._of_shapes({one.shape for one in wanted if one.shape})
        versions = {(tenant, one.model, one.version) for one in wanted if one.model != GENERIC}
        tsls = known or await self._tsls.find_all(versions)
        declared = {version: await self._of_tsl(version, tsls[version]) for version in versions}
        return {
            one: _renamed(
                shapes.get(one.shape) or declared.get((tenant, one.model, one.version), _NONE),
                one.names,
            )
            for one in wanted
        }

    async def _of_tsl(self, version: TslKey, tsl: Tsl) -> MemberSet:
        tenant, model, _ = version
        members = self._known.get((tenant, model, tsl))
        if members is None:
            marks = marks_of(tsl.document)
            owner = owner_of(tenant, model)
            members = members_of(
                tsl.document, await self._registry.numbers(owner, marks) if marks else {}
            )
        self._keep((tenant, model, tsl), members)
        return members

    async def _of_shapes(self, shapes: set[str]) -> dict[str, MemberSet]:
        found: dict[str, MemberSet] = {}
        missing: list[str] = []
        for shape in shapes:
            known = self._known.get((GENERIC, "", shape))
            if known is None:
                missing.append(shape)
            else:
                found[shape] = known
        if missing:
            for name, paths in (await self._shapes.read(missing)).items():
                found[name] = members = members_of_shape(paths)
                self._keep((GENERIC, "", name), members)
        return found

    def _keep(self, key: tuple[str, str, str | Tsl], members: MemberSet) -> None:
        if key not in self._known:
            self._size += len(members.members)
        self._known[key] = members
        self._known.move_to_end(key)
        while self._size > KEPT and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._size -= len(oldest.members)


@lru_cache(maxsize=1000)
def _renamed(members: MemberSet, names: str) -> MemberSet:
    return members.renamed(names_of(names)) if names else members


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
        return await self.by_parts(tenant, split_keys(keys), records=records)

    async def by_parts(
        self, tenant: str, parts: Mapping[str, KeyParts], *, records: bool = False
    ) -> dict[str, Entity]:
        """The same of keys that have been taken apart."""
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


def split_keys(keys: Iterable[str]) -> dict[str, KeyParts]:
    """Take keys of entities apart; leave out what cannot be one."""
    return {key: split for key in keys if (split := split_key(key)) is not None}


def own_integrations(keys: Mapping[str, KeyParts]) -> set[str]:
    """The integrations of whose own entities some are keys."""
    return {parts.integration for parts in keys.values() if parts.device is None} - {SYSTEM}


def _place(split: KeyParts) -> tuple[str, str]:
    """Identifier of the thing, and the path below it."""
    if split.device is not None:
        return split.device, split.path
    if split.integration != SYSTEM:
        return "", split.path
    identifier, _, path = split.path.partition(".")
    return identifier, path
