"""Entities that a user may see, with their latest values."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec

from libs.common.clock import to_ms
from libs.common.decoding import copy_fields
from libs.common.errors import Forbidden, InvalidInput, NotFound
from libs.common.http.streaming import StreamedAnswer, iterate_rows, map_batches
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants
from libs.common.integrations.client import Integrations, IntegrationSummary
from libs.common.jobs import gather_limited
from libs.common.store.mongo import Document
from libs.common.things import (
    ALARM_PATH,
    LOCATION_PATH,
    MAX_TSL_MEMBER_NUMBER,
    STATUS_PATH,
    SYSTEM_INTEGRATION,
)
from services.device.alarms.model import Alarm
from services.device.alarms.store import AlarmStore
from services.device.entities.schemas import (
    EntityMeta,
    EntityResponse,
    EntityStatus,
    LatestValue,
    WorkflowRef,
)
from services.device.members.directory import (
    EntityDirectory,
    find_integrations_with_own_entities,
    split_keys,
)
from services.device.members.entity import Entity, EntityThing
from services.device.members.integration_things import IntegrationThings
from services.device.telemetry.device_events import EventStore
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.partitions import KEY_FORMAT
from services.device.telemetry.retention import Retention
from services.device.things.device_store import DeviceStore
from services.device.things.model import Device
from services.device.things.thing_store import EntityNames, change_name

CONCURRENT_EVENT_LOOKUPS = 16
"""Kinds of events that are looked up at the same time."""

EntriesByKey = dict[str, Any]
"""`{top-level key: {"v": value, "t": ms}}` of one thing."""


@dataclass(frozen=True)
class ValueReader:
    """Reads latest values without a check of grants."""

    latest: LatestValues
    devices: DeviceStore
    alarms: AlarmStore
    event_store: EventStore
    retention: Retention

    async def find_property_values_by_thing(
        self, tenant: str, entities: Iterable[Entity]
    ) -> dict[int, EntriesByKey]:
        """Return the values of the properties among entities, by thing id."""
        reported, common = list[Entity](), set[int]()
        for entity in entities:
            if entity.member.type != "PROPERTY":
                continue
            if entity.member.number > MAX_TSL_MEMBER_NUMBER:
                common.add(entity.thing.id)
            else:
                reported.append(entity)
        reported_values = await self.find_reported_by_thing(reported)
        if common:
            for device_id, entries in (
                await self._read_status_location_alarm(tenant, sorted(common))
            ).items():
                reported_values.setdefault(device_id, {}).update(entries)
        return reported_values

    async def find_reported_by_thing(self, entities: Sequence[Entity]) -> dict[int, EntriesByKey]:
        """Return the reported top-level properties of entities, by thing id."""
        things = {entity.thing.id for entity in entities}
        keys = {entity.reported_path[0] for entity in entities}
        return await self.latest.find_entries(things, keys=keys) if things else {}

    async def find_newest_events_by_thing(
        self, entities: Iterable[Entity]
    ) -> dict[int, EntriesByKey]:
        """Return the outputs of the newest event of each kind, by thing id."""
        by_kind = {
            (entity.thing.id, entity.reported_path[0]): entity.thing
            for entity in entities
            if entity.member.type == "EVENT"
        }
        outputs_by_thing = dict[int, EntriesByKey]()
        calls = (
            partial(self._find_last_event, thing, name) for (_, name), thing in by_kind.items()
        )
        rows = await gather_limited(CONCURRENT_EVENT_LOOKUPS, calls)
        for (thing_id, name), row in zip(by_kind, rows, strict=True):
            if row is not None:
                entry = {"v": row["o"], "t": KEY_FORMAT.unpack(bytes(row["_id"]))[1]}
                outputs_by_thing.setdefault(thing_id, {})[name] = entry
        return outputs_by_thing

    async def _find_last_event(self, thing: EntityThing, name: str) -> Document | None:
        oldest = await self.retention.oldest_kept_time(thing.tenant, thing.model)
        return await self.event_store.find_newest(thing.id, name.removesuffix("@event"), oldest)

    async def _read_status_location_alarm(
        self, tenant: str, ids: list[int]
    ) -> dict[int, EntriesByKey]:
        devices = await self.devices.find_all(tenant, ids)
        alarms = await self.alarms.queries.find_newest_open_unclaimed(tenant, ids)
        return {
            device.id: _status_and_location_entries(device)
            | ({ALARM_PATH: _alarm_value(alarms[device.id])} if device.id in alarms else {})
            for device in devices
        }


def without_times(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each entry by key, without its time."""
    return {key: entry["v"] for key, entry in entries.items()}


def _status_and_location_entries(device: Device) -> EntriesByKey:
    entries: EntriesByKey = {}
    if device.connect_status != "DISCONNECT":
        since = device.connect_changed or device.updated_at
        entries[STATUS_PATH] = {"v": device.connect_status, "t": to_ms(since)}
    place = device.location
    if place is not None:
        value: dict[str, Any] = {"@latitude": place.latitude, "@longitude": place.longitude}
        if place.address is not None:
            value["@address"] = place.address
        entries[LOCATION_PATH] = {"v": value, "t": to_ms(device.updated_at)}
    return entries


def _alarm_value(alarm: Alarm) -> Any:
    value = {
        "@alarm_status": True,
        "@alarm_time": alarm.raised_at,
        "@alarm_content": alarm.content,
    }
    return {"v": value, "t": alarm.raised_at}


MAX_ENTITIES_PER_REQUEST = 1000
"""Maximum entities of one request."""
ENTITIES_PER_VALUE_READ = 32
"""Entities whose values are read together: a value has up to 256 KiB."""


@dataclass(frozen=True, kw_only=True)
class EntityService:
    """Finds entities that a user may see, and their values."""

    directory: EntityDirectory
    grants: GrantReader
    integrations: Integrations
    integration_things: IntegrationThings
    values: ValueReader
    names: Mapping[bool, EntityNames]
    """Stores of entity names, by whether the thing is a device."""

    async def find(self, principal: Principal, entity_id: int) -> Entity:
        """Return an entity that the user may see; raise as `find_visible_or_raise`."""
        (entity,) = await self.find_visible_or_raise(principal, [entity_id])
        return entity

    async def find_visible(self, principal: Principal, ids: Sequence[int]) -> list[Entity]:
        """Return the entities that the user may see, in the order of `ids`.

        Every user may see custom entities. Unknown and hidden entities are left out, so that a
        dashboard with such an entity shows the others.
        """
        entities = await self.directory.find_by_ids(principal.tenant, ids)
        rows = [entities[key] for key in ids if key in entities]
        if all(map(_is_shared, rows)):
            return rows
        grants = await self.grants.read(principal)
        return [entity for entity in rows if _is_shared(entity) or entity.is_visible_to(grants)]

    async def find_visible_or_raise(self, principal: Principal, ids: Sequence[int]) -> list[Entity]:
        """Return those of the entities that the user may see.

        Raises `NotFound` if the user may see none of them, or `Forbidden` for a user without any
        grant.
        """
        rows = await self.find_visible(principal, ids)
        if not rows:
            await self._require_grants(principal)
            raise entity_not_found(ids[0])
        return rows

    async def find_by_keys(self, principal: Principal, keys: Collection[str]) -> dict[str, Entity]:
        """Return the entities of `keys` that the user may see, with their records.

        Every user may see custom entities. Unknown and hidden entities are missing. Raises
        `InvalidInput`, or `Forbidden` for a user without any grant who requests no custom entity.
        """
        if not 1 <= len(keys) <= MAX_ENTITIES_PER_REQUEST:
            raise InvalidInput(
                f"must name 1 to {MAX_ENTITIES_PER_REQUEST} entities", field="exchange"
            )
        parts = split_keys(keys)
        await self.integration_things.ensure_for_tenant(
            principal.tenant, find_integrations_with_own_entities(parts)
        )
        entities = await self.directory.find_by_split_keys(
            principal.tenant, parts, load_things=True
        )
        shared = {key: entity for key, entity in entities.items() if _is_shared(entity)}
        if len(shared) == len(keys):
            return shared
        grants = (
            await self.grants.read(principal) if shared else await self._require_grants(principal)
        )
        return {
            key: entity
            for key, entity in entities.items()
            if key in shared or entity.is_visible_to(grants)
        }

    async def _require_grants(self, principal: Principal) -> Grants:
        grants = await self.grants.read(principal)
        if grants.is_empty:
            raise Forbidden("the user has no grant for any device or entity")
        return grants

    async def list_children(self, principal: Principal, entity_id: int) -> list[EntityResponse]:
        """Return the children of an entity, by number; only an OBJECT has children."""
        entity = await self.find(principal, entity_id)
        integrations = await self.integrations.list_summaries()
        members = entity.thing.children(entity.member.path)
        members.sort(key=lambda member: member.number)
        return [
            to_entity_response(Entity(entity.thing, member), integrations) for member in members
        ]

    async def get_meta(self, principal: Principal, entity_id: int) -> EntityMeta:
        """Return the metadata of an entity."""
        return to_entity_meta(await self.find(principal, entity_id))

    async def rename(self, tenant: str, entity: Entity, name: str) -> None:
        """Rename an entity of a device or integration; the name in its TSL is the default."""
        thing, member = entity.thing, entity.member
        if member.number not in thing.members.by_number:
            raise InvalidInput("is common to all devices: it has a fixed name", field="entity_id")
        custom_name = None if name == (member.declared or member.name) else name
        change = partial(change_name, path=member.path, name=custom_name)
        if not await self.names[thing.device].change(tenant, thing.id, change):
            raise entity_not_found(entity.id)

    async def get_status(self, principal: Principal, entity_id: int) -> EntityStatus:
        """Return the latest value of a property or event, or an empty value if it is hidden.

        A dashboard may contain entities that a user may not see, or that do not exist.
        """
        entities = await self.directory.find_by_ids(principal.tenant, [entity_id])
        visible = await self._filter_visible(principal, entities)
        latest_value = (
            LatestValue()
            if not visible
            else (await self._find_latest_values(principal.tenant, visible))[0]
        )
        return copy_fields(EntityStatus, latest_value, updated_at=latest_value.timestamp)

    async def stream_statuses(
        self, principal: Principal, ids: Sequence[int]
    ) -> StreamedAnswer[dict[str, LatestValue]]:
        """Stream the latest values of visible entities, by id."""
        found = await self.directory.find_by_ids(principal.tenant, ids)
        visible = await self._filter_visible(principal, found)

        async def read_statuses(entities: Sequence[Entity]) -> list[tuple[str, LatestValue]]:
            values = await self._find_latest_values(principal.tenant, entities)
            return [(str(entity.id), value) for entity, value in zip(entities, values, strict=True)]

        return StreamedAnswer(
            {}, map_batches(iterate_rows(visible), read_statuses, ENTITIES_PER_VALUE_READ)
        )

    async def _filter_visible(
        self, principal: Principal, entities: Mapping[int, Entity]
    ) -> list[Entity]:
        grants = await self.grants.read(principal)
        return [
            entity
            for entity in entities.values()
            if _is_shared(entity) or entity.is_visible_to(grants)
        ]

    async def _find_latest_values(
        self, tenant: str, entities: Sequence[Entity]
    ) -> list[LatestValue]:
        entries = await self.values.find_property_values_by_thing(tenant, entities)
        for thing_id, events in (await self.values.find_newest_events_by_thing(entities)).items():
            entries[thing_id] = entries.get(thing_id, {}) | events
        return [_latest_value(entity, entries.get(entity.thing.id, {})) for entity in entities]


def entity_not_found(entity_id: int) -> NotFound:
    """Return the error for an entity that does not exist or is hidden."""
    return NotFound(f"entity {entity_id} not found", field="entity_id")


def _is_shared(entity: Entity) -> bool:
    """Return whether every user of the tenant may see the entity."""
    return entity.thing.integration == SYSTEM_INTEGRATION


def _latest_value(entity: Entity, entries: Mapping[str, Any]) -> LatestValue:
    """Return the latest value of an entity from the entries of its thing.

    The value of an event is the object of its outputs.
    """
    name = entity.reported_path[0]
    if name not in entries or entity.member.type not in ("PROPERTY", "EVENT"):
        return LatestValue()
    value = _value_in(entity, without_times(entries))
    if value is None:
        return LatestValue()
    written = entries[name]["t"]
    return LatestValue(value=value, timestamp=str(written), value_type=entity.member.value_type)


def _value_in(entity: Entity, values: Mapping[str, Any]) -> Any:
    """Return the value of an entity from the values of its thing; of an event, all its outputs."""
    if entity.member.type == "EVENT" and entity.member.parent is None:
        return values.get(entity.reported_path[0])
    return entity.value_in(values)


def latest_text(entity: Entity, values: Mapping[str, Any]) -> str | None:
    """Return the latest value as text: numbers without an exponent, others as JSON."""
    value = _value_in(entity, values)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    return msgspec.json.encode(value).decode()


def to_entity_response(
    entity: Entity, integrations: Mapping[str, IntegrationSummary]
) -> EntityResponse:
    """Return the row of an entity in a list."""
    thing, member = entity.thing, entity.member
    integration = integrations.get(thing.integration)
    above = None if member.parent is None else thing.find_member_at(member.parent)
    return EntityResponse(
        entity_id=str(entity.id),
        entity_key=entity.key,
        entity_name=member.name,
        entity_type=member.type,
        entity_value_type=member.value_type,
        entity_value_attribute=member.attribute,
        entity_access_mod=member.access_mod,
        entity_parent_name=above.name if above else None,
        entity_description=member.description,
        entity_is_customized=entity.is_custom,
        entity_created_at=thing.created_at,
        entity_updated_at=thing.updated_at,
        device_id=str(thing.id) if thing.device else None,
        device_name=thing.name,
        integration_name=integration.name if integration else None,
        entity_value_store_mod="ALL" if member.type == "PROPERTY" else "HISTORY",
        workflow_data=(None if thing.flow is None else WorkflowRef(str(thing.flow), member.name)),
    )


def to_entity_meta(entity: Entity) -> EntityMeta:
    """Return the metadata of an entity."""
    thing, member = entity.thing, entity.member
    return copy_fields(
        EntityMeta,
        member,
        id=str(entity.id),
        key=entity.key,
        value_attribute=member.attribute,
        customized=entity.is_custom,
        device_id=str(thing.id) if thing.device else None,
        device_name=thing.name,
        created_at=thing.created_at,
        updated_at=thing.updated_at,
    )
