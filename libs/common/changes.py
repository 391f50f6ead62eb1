"""Changes of entities, read from events of the bus."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.things import (
    ADDRESS_PATH,
    ALARM_CONTENT_PATH,
    ALARM_PATH,
    ALARM_STATUS_PATH,
    ALARM_TIME_PATH,
    LATITUDE_PATH,
    LONGITUDE_PATH,
    STATUS_PATH,
    flatten_properties,
    member_key,
)

REPORT_SUBJECTS = ("event.*.*.*.reported", "event.*.device.*.event")
"""Reports of devices and other things, and events of devices."""
ALARM_SUBJECTS = "event.*.alarm.*.*"
_ALARM_PATHS = (ALARM_STATUS_PATH, ALARM_TIME_PATH, ALARM_CONTENT_PATH)
_CHANGED_PATHS_BY_EVENT = {
    "online": (STATUS_PATH,),
    "offline": (STATUS_PATH,),
    "updated": (LATITUDE_PATH, LONGITUDE_PATH, ADDRESS_PATH),
    "raised": _ALARM_PATHS,
    "claimed": _ALARM_PATHS,
    "cleared": _ALARM_PATHS,
}
"""Paths of the changed entities by the last word of an event's subject; every device has them."""
DEVICE_STATE_SUBJECTS = (
    *(f"event.*.device.*.{word}" for word in ("online", "offline", "updated")),
    ALARM_SUBJECTS,
)
"""Subjects of the events that may change the entities which every device has."""


@dataclass(frozen=True, slots=True)
class ChangedThing:
    """The thing that changed."""

    id: int
    key: str
    integration: str
    device: bool
    """False for an integration or a custom entity."""
    group: int | None = None
    """The group of a device."""
    model: str = ""
    """The product of a device."""
    name: str = ""
    """The name of a device."""


@dataclass(frozen=True, slots=True)
class EntityChange:
    """The changed values of one event."""

    event_id: str
    tenant: str
    thing: ChangedThing
    ts: int
    """The time of the measurement, or of the change of an alarm or state, in epoch ms."""
    values: Mapping[str, Any]
    """Values by entity key, of properties and of their members; None for a changed state."""
    is_event: bool = False
    """Whether it is an event of the TSL, and not a report of properties."""


class _Thing(msgspec.Struct, rename="camel"):
    device_id: int
    thing_key: str = ""
    name: str = ""
    model: str = ""
    group_id: int | None = None


class _Event(msgspec.Struct, rename="camel"):
    event_id: str
    tenant: str
    device: _Thing
    ts: int = 0
    created_at: int = 0
    properties: dict[str, Any] = {}
    tsl_id: str = ""
    outputs: dict[str, Any] = {}


_match_arrival = re.compile("[er]-([0-9a-f]{1,12})-[0-9a-f]+").fullmatch
_decoder = msgspec.json.Decoder(_Event)
_EVENT_FIELDS = ("eventId", "createdAt", "tenant", "device")
"""Fields of an alarm event that are not part of the alarm."""


def read_reported_change(payload: bytes) -> EntityChange:
    """Return the change of a `…reported` or `…event` event; raise `msgspec.DecodeError`.

    An event of the TSL changes its own entity and those of its outputs.
    """
    event = _decoder.decode(payload)
    reported = {event.tsl_id: event.outputs} if event.tsl_id else event.properties
    paths: dict[str, Any] = {
        name: value for name, value in reported.items() if isinstance(value, dict)
    }
    paths.update(flatten_properties(reported))
    key = event.device.thing_key
    values = {member_key(key, path): value for path, value in paths.items()}
    is_event = bool(event.tsl_id)
    return EntityChange(
        event.event_id, event.tenant, _thing(event.device), event.ts, values, is_event
    )


def parse_arrival_time(event_id: str) -> int:
    """Return when the bus received the message that caused an event, in Unix ms.

    The ids of reports and device events contain it (`Uplink.key` in `device`); 0 for other ids.
    """
    match = _match_arrival(event_id)
    return int(match[1], 16) if match else 0


def read_alarm_change(payload: bytes) -> EntityChange:
    """Return the change of an alarm event, whose value belongs to `@alarm` of the device."""
    event = _decoder.decode(payload)
    said: dict[str, Any] = msgspec.json.decode(payload)
    value = {name: member for name, member in said.items() if name not in _EVENT_FIELDS}
    values = {member_key(event.device.thing_key, ALARM_PATH): value}
    return EntityChange(
        event.event_id, event.tenant, _thing(event.device), event.created_at, values
    )


def read_state_change(subject: str, payload: bytes) -> EntityChange:
    """Return the entities that an event of `DEVICE_STATE_SUBJECTS` changed, without values."""
    event = _decoder.decode(payload)
    paths = _CHANGED_PATHS_BY_EVENT[subject.rpartition(".")[2]]
    values = dict.fromkeys(member_key(event.device.thing_key, path) for path in paths)
    return EntityChange(
        event.event_id, event.tenant, _thing(event.device), event.created_at, values
    )


def _thing(about: _Thing) -> ChangedThing:
    integration, _, rest = about.thing_key.partition(".")
    is_device = rest.startswith("device.")
    return ChangedThing(
        about.device_id,
        about.thing_key,
        integration,
        is_device,
        about.group_id,
        about.model,
        about.name,
    )
