"""Entities that a user sees, with their latest values."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec

from libs.common.clock import to_ms
from libs.common.decoding import copy_fields
from libs.common.errors import Forbidden, InvalidInput, NotFound
from libs.common.http.streaming import Streamed, each, in_parts
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants
from libs.common.integrations.client import Integrations, ShownIntegration
from libs.common.jobs import gather_limited
from libs.common.store.mongo import Document
from libs.common.things import ALARM, LAST_DECLARED, LOCATION, STATUS, SYSTEM
from services.device.alarms.model import Alarm
from services.device.alarms.store import AlarmStore
from services.device.entities.schemas import (
    EntityMeta,
    EntityStatus,
    LatestValue,
    ShownEntity,
    WorkflowRef,
)
from services.device.members.directory import EntityDirectory, own_integrations, split_keys
from services.device.members.entity import Entity, EntityThing
from services.device.members.integration_things import IntegrationThings
from services.device.telemetry.device_events import EventStore
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.partitions import KEY
from services.device.telemetry.retention import Retention
from services.device.things.device_store import DeviceStore
from services.device.things.model import Device
from services.device.things.thing_store import EntityNames, with_name

AT_ONCE = 16
"""Kinds of events that are looked up at the same time."""

Entries = dict[str, Any]
"""`{top-level key: {"v": value, "t": ms}}` of one thing."""


@dataclass(frozen=True)
class ValueReader:
    """Reads latest values; looks at no grants."""

    latest: LatestValues
    devices: DeviceStore
    alarms: AlarmStore
    event_store: EventStore
    retention: Retention

    async def entries(self, tenant: str, entities: Iterable[Entity]) -> dict[int, Entries]:
        """The values of the properties among entities of a tenant, by thing."""
        reported, common = list[Entity](), set[int]()
        for entity in entities:
            if entity.member.type != "PROPERTY":
                continue
            if entity.member.number > LAST_DECLARED:
                common.add(entity.thing.id)
            else:
                reported.append(entity)
        found = await self.reported(reported)
        if common:
            for device_id, entries in (await self._common(tenant, sorted(common))).items():
                found.setdefault(device_id, {}).update(entries)
        return found

    async def reported(self, entities: Sequence[Entity]) -> dict[int, Entries]:
        """Return what was reported of the top-level properties of entities, by thing."""
        things = {one.thing.id for one in entities}
        keys = {one.reported_path[0] for one in entities}
        return await self.latest.entries(things, keys=keys) if things else {}

    async def events(self, entities: Iterable[Entity]) -> dict[int, Entries]:
        """Return the outputs of the newest event of each kind among `entities`, by thing."""
        by_kind = {
            (one.thing.id, one.reported_path[0]): one.thing
            for one in entities
            if one.member.type == "EVENT"
        }
        found = dict[int, Entries]()
        calls = (partial(self._last, thing, name) for (_, name), thing in by_kind.items())
        rows = await gather_limited(AT_ONCE, calls)
        for (thing_id, name), row in zip(by_kind, rows, strict=True):
            if row is not None:
                entry = {"v": row["o"], "t": KEY.unpack(bytes(row["_id"]))[1]}
                found.setdefault(thing_id, {})[name] = entry
        return found

    async def _last(self, thing: EntityThing, name: str) -> Document | None:
        oldest = await self.retention.oldest(thing.tenant, thing.model)
        return await self.event_store.last(thing.id, name.removesuffix("@event"), oldest)

    async def _common(self, tenant: str, ids: list[int]) -> dict[int, Entries]:
        devices = await self.devices.find_all(tenant, ids)
        alarms = await self.alarms.queries.newest_unclaimed(tenant, ids)
        return {
            device.id: _of_device(device)
            | ({ALARM: _of_alarm(alarms[device.id])} if device.id in alarms else {})
            for device in devices
        }


def plain(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The same without the times."""
    return {key: entry["v"] for key, entry in entries.items()}


def _of_device(device: Device) -> Entries:
    entries: Entries = {}
    if device.connect_status != "DISCONNECT":
        since = device.connect_changed or device.updated_at
        entries[STATUS] = {"v": device.connect_status, "t": to_ms(since)}
    place = device.location
    if place is not None:
        value: dict[str, Any] = {"@latitude": place.latitude, "@longitude": place.longitude}
        if place.address is not None:
            value["@address"] = place.address
        entries[LOCATION] = {"v": value, "t": to_ms(device.updated_at)}
    return entries


def _of_alarm(alarm: Alarm) -> Any:
    value = {
        "@alarm_status": True,
        "@alarm_time": alarm.raised_at,
        "@alarm_content": alarm.content,
    }
    return {"v": value, "t": alarm.raised_at}


MOST_KEYS = 1000
"""Entities of one exchange."""
VALUES_TOGETHER = 32
"""Entities of an answer whose values are read together: a value has up to 256 KiB."""


@dataclass(frozen=True, kw_only=True)
class EntityService:
    """Finds entities that a user sees, and says what is known of them."""

    directory: EntityDirectory
    grants: GrantReader
    integrations: Integrations
    integration_things: IntegrationThings
    values: ValueReader
    names: Mapping[bool, EntityNames]
    """Those of devices (true), and of integrations."""

    async def find(self, principal: Principal, entity_id: int) -> Entity:
        """An entity, when the user sees it; see `find_all`."""
        (found,) = await self.find_all(principal, [entity_id])
        return found

    async def visible(self, principal: Principal, ids: Sequence[int]) -> list[Entity]:
        """Those of some entities that the user sees, in the order of `ids`.

        Custom ones every user does. Unknown and invisible ones are left out, so that a board with
        such an entity shows its other entities.
        """
        found = await self.directory.by_ids(principal.tenant, ids)
        rows = [found[key] for key in ids if key in found]
        if all(map(_shared, rows)):
            return rows
        grants = await self.grants.of(principal)
        return [one for one in rows if _shared(one) or one.seen_with(grants)]

    async def find_all(self, principal: Principal, ids: Sequence[int]) -> list[Entity]:
        """The `visible` ones of some entities, at least one.

        When there is none, `NotFound` names the first, or `Forbidden` says that the user has no
        grant at all.
        """
        rows = await self.visible(principal, ids)
        if not rows:
            await self._granted(principal)
            raise unknown_entity(ids[0])
        return rows

    async def with_keys(self, principal: Principal, keys: Collection[str]) -> dict[str, Entity]:
        """The entities of `keys` that the user sees, with their records; see `EntityThing`.

        Custom ones every user sees. What is unknown is missing, and so is what the user does
        not see. Raises `Forbidden` for a user who has no grant at all and means none that
        everybody sees.
        """
        if not 1 <= len(keys) <= MOST_KEYS:
            raise InvalidInput(f"must have 1 to {MOST_KEYS} entities", field="exchange")
        parts = split_keys(keys)
        await self.integration_things.complete(principal.tenant, own_integrations(parts))
        found = await self.directory.by_parts(principal.tenant, parts, records=True)
        shared = {key: one for key, one in found.items() if _shared(one)}
        if len(shared) == len(keys):
            return shared
        grants = await self.grants.of(principal) if shared else await self._granted(principal)
        return {key: one for key, one in found.items() if key in shared or one.seen_with(grants)}

    async def _granted(self, principal: Principal) -> Grants:
        grants = await self.grants.of(principal)
        if grants.nothing:
            raise Forbidden("user does not have data permission")
        return grants

    async def children(self, principal: Principal, entity_id: int) -> list[ShownEntity]:
        """The children of an entity, by number; none of one that is no OBJECT."""
        entity = await self.find(principal, entity_id)
        integrations = await self.integrations.known()
        members = entity.thing.children(entity.member.path)
        members.sort(key=lambda member: member.number)
        return [shown_entity(Entity(entity.thing, member), integrations) for member in members]

    async def meta(self, principal: Principal, entity_id: int) -> EntityMeta:
        """What is known of an entity besides its value."""
        return meta_of(await self.find(principal, entity_id))

    async def rename(self, tenant: str, entity: Entity, name: str) -> None:
        """Call an entity of a device or of an integration otherwise, or again as its TSL does."""
        thing, member = entity.thing, entity.member
        if member.number not in thing.members.by_number:
            raise InvalidInput("every device has it by this name", field="entity_id")
        given = None if name == (member.declared or member.name) else name
        change = partial(with_name, path=member.path, name=given)
        if not await self.names[thing.device].change(tenant, thing.id, change):
            raise unknown_entity(entity.id)

    async def status(self, principal: Principal, entity_id: int) -> EntityStatus:
        """The latest value of a property; nothing of what has none, or the user does not see.

        A board may hold entities that some of its users do not see, or that do not exist.
        """
        entities = await self.directory.by_ids(principal.tenant, [entity_id])
        seen = await self._seen(principal, entities)
        found = LatestValue() if not seen else (await self._latest(principal.tenant, seen))[0]
        return EntityStatus(
            value=found.value,
            timestamp=found.timestamp,
            updated_at=found.timestamp,
            value_type=found.value_type,
        )

    async def statuses(
        self, principal: Principal, ids: Sequence[int]
    ) -> Streamed[dict[str, LatestValue]]:
        """Stream the latest values of those of some entities that the user sees, by id."""
        seen = await self._seen(principal, await self.directory.by_ids(principal.tenant, ids))

        async def read(entities: Sequence[Entity]) -> list[tuple[str, LatestValue]]:
            values = await self._latest(principal.tenant, entities)
            return [(str(one.id), value) for one, value in zip(entities, values, strict=True)]

        return Streamed({}, in_parts(each(seen), read, VALUES_TOGETHER))

    async def _seen(self, principal: Principal, entities: Mapping[int, Entity]) -> list[Entity]:
        grants = await self.grants.of(principal)
        return [one for one in entities.values() if _shared(one) or one.seen_with(grants)]

    async def _latest(self, tenant: str, entities: Sequence[Entity]) -> list[LatestValue]:
        entries = await self.values.entries(tenant, entities)
        for thing_id, events in (await self.values.events(entities)).items():
            entries[thing_id] = entries.get(thing_id, {}) | events
        return [_latest_value(one, entries.get(one.thing.id, {})) for one in entities]


def unknown_entity(entity_id: int) -> NotFound:
    """There is none, or none that the user sees."""
    return NotFound(f"entity {entity_id} not found", field="entity_id")


def _shared(entity: Entity) -> bool:
    """Whether every user of its tenant sees it."""
    return entity.thing.integration == SYSTEM


def _latest_value(entity: Entity, entries: Mapping[str, Any]) -> LatestValue:
    """Of what its thing has, by top-level key: `{"v": value, "t": ms}`.

    The value of an event is the object of its outputs.
    """
    name = entity.reported_path[0]
    if name not in entries or entity.member.type not in ("PROPERTY", "EVENT"):
        return LatestValue()
    value = _value_in(entity, plain(entries))
    if value is None:
        return LatestValue()
    written = entries[name]["t"]
    return LatestValue(value=value, timestamp=str(written), value_type=entity.member.value_type)


def _value_in(entity: Entity, values: Mapping[str, Any]) -> Any:
    """Return the value among those of its thing; of an event the object of its outputs."""
    if entity.member.type == "EVENT" and entity.member.parent is None:
        return values.get(entity.reported_path[0])
    return entity.value_in(values)


def latest_text(entity: Entity, values: Mapping[str, Any]) -> str | None:
    """The latest value as text: numbers without an exponent, what is no text as JSON."""
    value = _value_in(entity, values)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    return msgspec.json.encode(value).decode()


def shown_entity(entity: Entity, integrations: Mapping[str, ShownIntegration]) -> ShownEntity:
    """A row of a list."""
    thing, member = entity.thing, entity.member
    integration = integrations.get(thing.integration)
    above = None if member.parent is None else thing.at(member.parent)
    return ShownEntity(
        entity_id=str(entity.id),
        entity_key=entity.key,
        entity_name=member.name,
        entity_type=member.type,
        entity_value_type=member.value_type,
        entity_value_attribute=member.attribute,
        entity_access_mod=member.access_mod,
        entity_parent_name=above.name if above else None,
        entity_description=member.description,
        entity_is_customized=entity.customized,
        entity_created_at=thing.created_at,
        entity_updated_at=thing.updated_at,
        device_id=str(thing.id) if thing.device else None,
        device_name=thing.name,
        integration_name=integration.name if integration else None,
        entity_value_store_mod="ALL" if member.type == "PROPERTY" else "HISTORY",
        workflow_data=(None if thing.flow is None else WorkflowRef(str(thing.flow), member.name)),
    )


def meta_of(entity: Entity) -> EntityMeta:
    """What is known of an entity besides its value."""
    thing, member = entity.thing, entity.member
    return copy_fields(
        EntityMeta,
        member,
        id=str(entity.id),
        key=entity.key,
        value_attribute=member.attribute,
        customized=entity.customized,
        device_id=str(thing.id) if thing.device else None,
        device_name=thing.name,
        created_at=thing.created_at,
        updated_at=thing.updated_at,
    )
