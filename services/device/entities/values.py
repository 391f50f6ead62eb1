"""Latest values of entities: what was reported, and what is known of every device."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from libs.common.clock import to_ms
from libs.common.jobs import gather_limited
from libs.common.store.mongo import Document
from libs.common.things import ALARM, LAST_DECLARED, LOCATION, STATUS
from services.device.alarms.model import Alarm
from services.device.alarms.store import AlarmStore
from services.device.members.entity import Entity, EntityThing
from services.device.telemetry.device_events import EventStore
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.partitions import KEY
from services.device.telemetry.retention import Retention
from services.device.things.device_store import DeviceStore
from services.device.things.model import Device

AT_ONCE = 16
"""Kinds of events that are looked up at the same time."""

Entries = dict[str, Any]
"""`{top-level key: {"v": value, "t": ms}}` of one thing."""


class ValueReader:
    """Reads latest values; looks at no grants."""

    def __init__(
        self,
        latest: LatestValues,
        devices: DeviceStore,
        alarms: AlarmStore,
        events: EventStore,
        retention: Retention,
    ) -> None:
        self._latest = latest
        self._devices = devices
        self._alarms = alarms
        self._events = events
        self._retention = retention

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
        return await self._latest.entries(things, keys=keys) if things else {}

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
        oldest = await self._retention.oldest(thing.tenant, thing.model)
        return await self._events.last(thing.id, name.removesuffix("@event"), oldest)

    async def _common(self, tenant: str, ids: list[int]) -> dict[int, Entries]:
        devices = await self._devices.find_all(tenant, ids)
        alarms = await self._alarms.queries.newest_unclaimed(tenant, ids)
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
