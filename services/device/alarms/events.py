"""Events of alarms, and evaluation requests."""

from typing import Any
from uuid import uuid4

import msgspec

from libs.common.bus import OutboxEntry, OutgoingMessage
from libs.common.bus.event_shortening import encode_shortened_event
from libs.common.bus.hops import hops_header
from libs.common.bus.subjects import alarm_check_event, alarm_event
from libs.common.clock import now_ms
from libs.common.contracts.events import AlarmChange, AlarmChanged, DeviceProfile
from libs.common.decoding import copy_fields
from services.device.alarms.model import Alarm


class EvaluationRequest(msgspec.Struct, rename="camel", omit_defaults=True):
    """Request to evaluate rules for a device whose values may change their states."""

    tenant: str
    device_id: int
    values: dict[int, Any]
    """Value or event id, by rule id; None for a silence that a report has ended."""
    ts: int
    """When the values were measured, ms."""
    sequence: int
    """Sequence in `UPLINK` of the message with the values."""
    received: int = 0
    """When the message with the values arrived, ms; 0 in a request of an older version."""
    earliest: int = 0
    """Time of the oldest reading that is possibly not evaluated yet, ms."""


decode_request = msgspec.json.Decoder(EvaluationRequest).decode


def build_request_message(
    request: EvaluationRequest, key: str, headers: dict[str, str]
) -> OutgoingMessage:
    """Return a request as message; `key` identifies the uplink, to drop duplicates."""
    subject = alarm_check_event(request.tenant, request.device_id)
    return OutgoingMessage(subject, msgspec.json.encode(request), f"l-{key}", headers)


def build_alarm_event(
    alarm: Alarm, change: AlarmChange, profile: DeviceProfile, hops: int = 0
) -> OutboxEntry:
    """Return the event `event.{tenant}.alarm.{deviceId}.(raised|cleared|claimed)`."""
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
    return OutboxEntry(subject, encode_shortened_event(event), headers=hops_header(hops))
