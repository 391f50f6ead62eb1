"""Finds member sets by their keys, and entities by id and by key."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from libs.common.store.mongo import Database, Document
from libs.common.things import (
    GENERIC_MODEL,
    SYSTEM_INTEGRATION,
    KeyParts,
    get_entity_thing_id,
    get_member_number,
    split_entity_key,
)
from libs.common.tsl import Tsl
from services.device.members.entity import (
    Entity,
    EntityThing,
    thing_from_device,
    thing_from_document,
)
from services.device.members.members import MemberSet, build_members, number_keys
from services.device.members.shapes import ShapeStore, shape_members
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory
from services.device.things.model import ListedDevice, MemberSetKey, Thing
from services.device.things.specifications import (
    MemberRegistry,
    TslKey,
    TslStore,
    product_number_owner,
)
from services.device.things.thing_store import parse_names
from services.device.things.visibility import Condition, identifier_condition

MAX_CACHED_MEMBERS = 100_000
"""Maximum members of all cached member sets together; a member takes half a KiB."""

_NO_MEMBERS = MemberSet(())


class MemberSetDirectory:
    """Finds member sets by their keys, and caches them."""

    def __init__(self, database: Database, tsls: TslStore) -> None:
        self._tsls = tsls
        self._shapes = ShapeStore(database)
        self._registry = MemberRegistry(database)
        self._known: OrderedDict[tuple[str, str, str | Tsl], MemberSet] = OrderedDict()
        """Members by tenant, product and TSL; those of shapes by ("generic", "", shape id)."""
        self._size = 0

    async def find(
        self,
        tenant: str,
        keys: Iterable[MemberSetKey],
        current_tsls: Mapping[TslKey, Tsl] | None = None,
    ) -> dict[MemberSetKey, MemberSet]:
        """Return the member set of each key; that of a deleted product is empty.

        If given, `current_tsls` contain the current TSL of every product version in `keys`.
        """
        missing_keys = set(keys)
        shapes = await self._find_by_shapes({key.shape for key in missing_keys if key.shape})
        versions = {
            (tenant, key.model, key.version) for key in missing_keys if key.model != GENERIC_MODEL
        }
        tsls = current_tsls or await self._tsls.find_all_or_generic(versions)
        declared = {
            version: await self._find_by_tsl(version, tsls[version]) for version in versions
        }
        return {
            key: _rename_members(
                shapes.get(key.shape)
                or declared.get((tenant, key.model, key.version), _NO_MEMBERS),
                key.names,
            )
            for key in missing_keys
        }

    async def _find_by_tsl(self, version: TslKey, tsl: Tsl) -> MemberSet:
        tenant, model, _ = version
        members = self._known.get((tenant, model, tsl))
        if members is None:
            keys = number_keys(tsl.document)
            owner = product_number_owner(tenant, model)
            members = build_members(
                tsl.document, await self._registry.assign_numbers(owner, keys) if keys else {}
            )
        self._cache((tenant, model, tsl), members)
        return members

    async def _find_by_shapes(self, shapes: set[str]) -> dict[str, MemberSet]:
        members_by_shape: dict[str, MemberSet] = {}
        missing: list[str] = []
        for shape in shapes:
            cached = self._known.get((GENERIC_MODEL, "", shape))
            if cached is None:
                missing.append(shape)
            else:
                members_by_shape[shape] = cached
        if missing:
            for name, identifiers_by_integration in (await self._shapes.read(missing)).items():
                members_by_shape[name] = members = shape_members(identifiers_by_integration)
                self._cache((GENERIC_MODEL, "", name), members)
        return members_by_shape

    def _cache(self, key: tuple[str, str, str | Tsl], members: MemberSet) -> None:
        if key not in self._known:
            self._size += len(members.members)
        self._known[key] = members
        self._known.move_to_end(key)
        while self._size > MAX_CACHED_MEMBERS and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._size -= len(oldest.members)


@lru_cache(maxsize=1000)
def _rename_members(members: MemberSet, names: str) -> MemberSet:
    return members.rename(parse_names(names)) if names else members


ThingsByIdentifier = dict[tuple[str, str], EntityThing]
"""Things by integration and identifier."""


class EntityDirectory:
    """Finds the entities of a tenant, regardless of grants."""

    def __init__(
        self, devices: DeviceStore, things: ThingDirectory, member_sets: MemberSetDirectory
    ) -> None:
        self._devices = devices
        self._things = things
        self._member_sets = member_sets

    async def find_by_ids(self, tenant: str, ids: Sequence[int]) -> dict[int, Entity]:
        """Return the entities with these ids; unknown ids are missing."""
        things = await self.find_things(
            tenant, {get_entity_thing_id(entity_id) for entity_id in ids}
        )
        entities: dict[int, Entity] = {}
        for entity_id in ids:
            thing = things.get(get_entity_thing_id(entity_id))
            member = thing.find_member(get_member_number(entity_id)) if thing else None
            if thing and member:
                entities[entity_id] = Entity(thing, member)
        return entities

    async def find_by_keys(
        self, tenant: str, keys: Iterable[str], *, load_things: bool = False
    ) -> dict[str, Entity]:
        """Return the entities with these keys; unknown keys are missing.

        With `load_things`, the things include their TSL, which reports and commands need.
        """
        return await self.find_by_split_keys(tenant, split_keys(keys), load_things=load_things)

    async def find_by_split_keys(
        self, tenant: str, parts: Mapping[str, KeyParts], *, load_things: bool = False
    ) -> dict[str, Entity]:
        """Return entities like `find_by_keys`, for keys that are split already."""
        identifiers: dict[bool, dict[str, set[str]]] = {
            True: defaultdict(set),
            False: defaultdict(set),
        }
        """By whether the thing is a device, then by integration."""
        for split in parts.values():
            identifier, _ = _split_identifier_and_path(split)
            identifiers[split.device is not None][split.integration].add(identifier)
        things = {
            True: await self._find_devices(tenant, identifiers[True], load_things=load_things),
            False: await self._find_non_device_things(
                tenant, identifiers[False], load_things=load_things
            ),
        }
        entities: dict[str, Entity] = {}
        for key, split in parts.items():
            identifier, path = _split_identifier_and_path(split)
            thing = things[split.device is not None].get((split.integration, identifier))
            member = thing.find_member_at(path) if thing else None
            if thing and member:
                entities[key] = Entity(thing, member)
        return entities

    async def find_things(self, tenant: str, ids: Iterable[int]) -> dict[int, EntityThing]:
        """Return the things with these ids; unknown ids are missing."""
        wanted_ids = list(ids)
        devices = await self._devices.queries.list_by_ids(tenant, wanted_ids)
        things = await self.build_things(tenant, devices)
        things += await self.find_non_device_things(tenant, {"_id": {"$in": wanted_ids}})
        return {thing.id: thing for thing in things}

    async def find_non_device_things(self, tenant: str, condition: Condition) -> list[EntityThing]:
        """Return the things that are not devices and meet a condition."""
        documents = await self._things.store.find({"tenant": tenant, **condition})
        return list(map(thing_from_document, documents))

    async def build_things(
        self, tenant: str, devices: Sequence[ListedDevice], loaded: Sequence[Thing] = ()
    ) -> list[EntityThing]:
        """Return the entity things of devices, in the same order.

        If given, `loaded` are the things of the devices with their TSLs, in the same order.
        """
        tsls = {(thing.tenant, thing.model, thing.tsl_version): thing.tsl for thing in loaded}
        member_sets = await self._member_sets.find(
            tenant, (device.member_set_key for device in devices), tsls
        )
        records: Sequence[Thing | None] = loaded or [None] * len(devices)
        return [
            thing_from_device(device, member_sets[device.member_set_key], record)
            for device, record in zip(devices, records, strict=True)
        ]

    async def _find_devices(
        self, tenant: str, identifiers_by_integration: dict[str, set[str]], *, load_things: bool
    ) -> ThingsByIdentifier:
        devices: list[ListedDevice] = []
        loaded: list[Thing] = []
        for integration, identifiers in identifiers_by_integration.items():
            if load_things:
                whole = await self._devices.find_by_identifiers(tenant, integration, identifiers)
                devices += whole
                loaded += await self._things.build_things(whole)
            else:
                devices += await self._devices.queries.list_by_identifiers(
                    tenant, integration, identifiers
                )
        things = await self.build_things(tenant, devices, loaded)
        return {(thing.integration, thing.identifier): thing for thing in things}

    async def _find_non_device_things(
        self, tenant: str, identifiers_by_integration: dict[str, set[str]], *, load_things: bool
    ) -> ThingsByIdentifier:
        documents: list[Document] = []
        for integration, identifiers in identifiers_by_integration.items():
            query = identifier_condition(tenant, integration, identifiers)
            documents += await self._things.store.find(query)
        return {
            (document["integration"], document["identifier"]): thing_from_document(
                document, self._things.build_from_document(document) if load_things else None
            )
            for document in documents
            if "hash" in document or not load_things
        }


def split_keys(keys: Iterable[str]) -> dict[str, KeyParts]:
    """Split keys of entities; omit invalid keys."""
    return {key: split for key in keys if (split := split_entity_key(key)) is not None}


def find_integrations_with_own_entities(keys: Mapping[str, KeyParts]) -> set[str]:
    """Return the integrations whose own entities are in `keys`, except `SYSTEM_INTEGRATION`.

    Entities of devices are not entities of an integration itself.
    """
    return {parts.integration for parts in keys.values() if parts.device is None} - {
        SYSTEM_INTEGRATION
    }


def _split_identifier_and_path(split: KeyParts) -> tuple[str, str]:
    """Return the identifier of the thing, and the path of the entity in it."""
    if split.device is not None:
        return split.device, split.path
    if split.integration != SYSTEM_INTEGRATION:
        return "", split.path
    identifier, _, path = split.path.partition(".")
    return identifier, path
