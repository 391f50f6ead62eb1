"""What alarms say on the bus, and what is read of what others say."""

from typing import Any
from uuid import uuid4

import msgspec

from libs.common.bus import OutboxEntry, Outgoing
from libs.common.bus.fitting import fitted
from libs.common.bus.hops import hops_header
from libs.common.bus.subjects import alarm_event, look_event
from libs.common.clock import now_ms
from libs.common.contracts.events import AlarmChange, AlarmChanged, DeviceProfile
from libs.common.decoding import copy_fields
from services.device.alarms.model import Alarm


class Pointer(msgspec.Struct, rename="camel", omit_defaults=True):
    """What a device has just said may change the states of some rules for it."""

    tenant: str
    device_id: int
    values: dict[int, Any]
    """By the id of the rule: what it looks at. None for a silence, which is over."""
    ts: int
    """ms: when it was measured."""
    sequence: int
    """Of it in `UPLINK`."""
    received: int = 0
    """ms: when it arrived; 0 from a version that did not say so."""
    earliest: int = 0
    """ms: the time of the oldest reading that was pointed at and may not be evaluated yet."""


read_pointer = msgspec.json.Decoder(Pointer).decode


def pointing(pointer: Pointer, key: str, headers: dict[str, str]) -> Outgoing:
    """`event.{tenant}.look.{deviceId}`, which the service says to itself; `key` is the uplink's."""
    subject = look_event(pointer.tenant, pointer.device_id)
    return Outgoing(subject, msgspec.json.encode(pointer), f"l-{key}", headers)


def alarm_changed(
    alarm: Alarm, change: AlarmChange, profile: DeviceProfile, hops: int = 0
) -> OutboxEntry:
    """`event.{tenant}.alarm.{deviceId}.(raised|cleared|claimed)`."""
    event = copy_fields(
        AlarmChanged,
        alarm,
        event_id=uuid4().hex,
        created_at=now_ms(),
        device=profile,
        change=change,
        alarm_id=alarm.id,
        rule_id=alarm.rule,
        flow_id=alarm.flow,
    )
    subject = alarm_event(alarm.tenant, alarm.device, change)
    return OutboxEntry(subject, fitted(event), headers=hops_header(hops))
