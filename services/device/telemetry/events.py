"""Events and dead messages that a batch causes, without write-only values."""

import base64
import math
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from libs.common.bus import OutgoingMessage
from libs.common.bus.event_shortening import encode_shortened_event
from libs.common.bus.hops import hops_header, read_hops
from libs.common.bus.subjects import dead_uplink_subject, device_event, thing_event
from libs.common.clock import now_ms
from libs.common.contracts.events import (
    Dead,
    DeviceEventReported,
    Fault,
    PropertiesRejected,
    PropertiesReported,
)
from libs.common.telemetry.tracing import trace_header
from libs.common.tsl import MASK, Tsl
from libs.common.tsl import Fault as TslFault
from services.device.telemetry.batch import Batch, ValidEvent, ValidReport
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing

UNMASKED_REJECTED_REPLY_FIELDS = ("commandId", "status")
"""Fields of a rejected reply that are shown; other ones may repeat write-only values."""


def concerns_write_only(faults: Iterable[TslFault]) -> bool:
    """Return whether faults concern, or may concern, a write-only value."""
    return any(fault.code == "write_only" or fault.args.get("value") == MASK for fault in faults)


def mask_payload(uplink: Uplink, thing: Thing | None, faults: Iterable[TslFault]) -> bytes:
    """Return a rejected message with its write-only values masked.

    Unreadable messages, and frames whose faults concern write-only values, are masked whole. Of a
    reply only command and status remain, because its error or outputs may repeat values of the
    command. Without a thing, or without write-only members in its TSL, nothing is masked.
    """
    if thing is None or not thing.tsl.conceals:
        return uplink.payload
    if uplink.channel == "frame":
        return MASK.encode() if concerns_write_only(faults) else uplink.payload
    try:
        message = msgspec.json.decode(uplink.payload)
        return msgspec.json.encode(_mask_message(uplink.channel, message, thing.tsl))
    except (ValueError, RecursionError):
        return MASK.encode()


def _mask_message(channel: str, message: Any, tsl: Tsl) -> Any:
    if not isinstance(message, dict):
        return MASK
    if channel == "reply":
        visible = {key: message[key] for key in UNMASKED_REJECTED_REPLY_FIELDS if key in message}
        return dict.fromkeys(message, MASK) | {
            key: value for key, value in visible.items() if isinstance(value, int | str)
        }
    properties = message.get("properties")
    masked = tsl.masked(message)
    if channel == "report" and properties is not None:
        masked["properties"] = tsl.masked(properties) if isinstance(properties, dict) else MASK
    return masked


MAX_KEPT_PAYLOAD_BYTES = 64 * 1024
"""Bytes of a rejected message that `DEAD` keeps."""
MAX_FAULTS = 100
"""Maximum faults in one event."""
MAX_FAULTS_BYTES = 32 * 1024
"""Bytes of JSON of the faults in one event."""
MAX_FAULT_TEXT_LENGTH = 500
"""Maximum characters of a path or a reason in an event."""
MAX_DEAD_REASON_LENGTH = 4000
"""Maximum characters of a reason in `DEAD`."""

_MAX_INTEGER = 2**63

_encoder = msgspec.json.Encoder()


def build_events(batch: Batch) -> Iterator[OutgoingMessage]:
    """Yield the events of a stored batch; their ids are the same at every redelivery."""
    now = now_ms()
    for report in batch.reports:
        yield _build_reported(report, now)
        if report.faults:
            yield _build_rejected(report.uplink, report.thing, report.ts, report.faults, now)
    for event in batch.events:
        yield _build_tsl_event(event, now)
    for rejected in batch.rejected:
        if rejected.thing is not None and rejected.is_announced and not rejected.exceeds_limit:
            faults = rejected.faults or [TslFault("", rejected.reason)]
            at = rejected.uplink.received
            yield _build_rejected(rejected.uplink, rejected.thing, at, faults, now, whole=True)


def _subject(thing: Thing, event: str) -> str:
    subject = device_event if thing.device else thing_event
    return subject(thing.tenant, thing.id, event)


def _common_fields(thing: Thing, ts: int, event_id: str, now: int) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "created_at": now,
        "tenant": thing.tenant,
        "device": thing.profile,
        "ts": ts,
    }


def _build_reported(report: ValidReport, now: int) -> OutgoingMessage:
    headers = hops_header(read_hops(report.uplink.message.headers))
    headers |= trace_header(report.uplink.trace)
    event_id = f"r-{report.uplink.key}"
    return reported_event(report.thing, report.ts, report.properties, event_id, now, headers)


def reported_event(
    thing: Thing,
    ts: int,
    properties: dict[str, Any],
    event_id: str,
    now: int,
    headers: dict[str, str] | None = None,
) -> OutgoingMessage:
    """Return the event `event.{tenant}.(device|thing).{id}.reported`; times are ms."""
    body = PropertiesReported(**_common_fields(thing, ts, event_id, now), properties=properties)
    return OutgoingMessage(
        _subject(thing, "reported"), encode_shortened_event(body), event_id, headers or {}
    )


def _build_rejected(
    uplink: Uplink,
    thing: Thing,
    ts: int,
    faults: list[TslFault],
    now: int,
    *,
    whole: bool = False,
) -> OutgoingMessage:
    event_id = f"x-{uplink.key}"
    common = _common_fields(thing, ts, event_id, now)
    body = PropertiesRejected(**common, faults=_fit_faults(faults), whole=whole)
    subject = _subject(thing, "rejected")
    return OutgoingMessage(
        subject, encode_shortened_event(body), event_id, trace_header(uplink.trace)
    )


def _fit_faults(faults: list[TslFault]) -> list[Fault]:
    """Return as many faults as fit into an event; the last entry counts the omitted ones."""
    listed: list[Fault] = []
    remaining_bytes = MAX_FAULTS_BYTES
    for fault in faults[:MAX_FAULTS]:
        value = _fit_value(fault.args.get("value"))
        short = Fault(
            fault.path[:MAX_FAULT_TEXT_LENGTH], fault.reason[:MAX_FAULT_TEXT_LENGTH], value
        )
        remaining_bytes -= len(_encoder.encode(short))
        if remaining_bytes < 0:
            break
        listed.append(short)
    if len(listed) < len(faults):
        listed.append(Fault("", f"and {len(faults) - len(listed)} more"))
    return listed


def _fit_value(value: object) -> bool | int | float | str | None:
    """Return a value for an event; None if it is no scalar, or a number above 64 bits."""
    if isinstance(value, str):
        return value[:MAX_FAULT_TEXT_LENGTH]
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) < _MAX_INTEGER):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None


def _build_tsl_event(event: ValidEvent, now: int) -> OutgoingMessage:
    thing = event.thing
    spec = thing.tsl.event(event.event_id)
    event_id = f"e-{event.uplink.key}"
    body = DeviceEventReported(
        **_common_fields(thing, event.ts, event_id, now),
        tsl_id=event.event_id,
        event_type=str(spec.type) if spec and spec.type else "INFO",
        outputs=event.outputs,
    )
    subject = _subject(thing, "event")
    return OutgoingMessage(
        subject, encode_shortened_event(body), event_id, trace_header(event.uplink.trace)
    )


def dead_message(
    uplink: Uplink, thing: Thing | None, reason: str, faults: list[TslFault]
) -> OutgoingMessage:
    """Return `dead.uplink.{sn}`: the rejected uplink, masked, with the reason."""
    payload = mask_payload(uplink, thing, faults)
    text, encoded = _as_text_or_base64(payload[:MAX_KEPT_PAYLOAD_BYTES])
    body = Dead(
        reason=reason[:MAX_DEAD_REASON_LENGTH],
        subject=uplink.message.subject,
        sequence=uplink.sequence,
        received_at=uplink.received,
        payload=text,
        base64=encoded,
        truncated=len(payload) > MAX_KEPT_PAYLOAD_BYTES,
        faults=_fit_faults(faults),
    )
    return OutgoingMessage(dead_uplink_subject(uplink.sn), _encoder.encode(body), f"d-{uplink.key}")


def dead_summary(uplink: Uplink, dropped: int, bytes_per_day: int) -> OutgoingMessage:
    """Return `dead.uplink.{sn}` with the number of rejected messages that are not kept.

    `uplink` is the latest of them, `bytes_per_day` the limit that they exceed.
    """
    body = Dead(
        reason=f"{dropped} refused messages are not kept: they exceed {bytes_per_day} bytes a day",
        subject=uplink.message.subject,
        sequence=uplink.sequence,
        received_at=uplink.received,
        payload="",
        truncated=True,
    )
    return OutgoingMessage(dead_uplink_subject(uplink.sn), _encoder.encode(body), f"n-{uplink.key}")


def _as_text_or_base64(payload: bytes) -> tuple[str, bool]:
    """Return a payload as text, or as base64 (True) if that is much shorter in JSON."""
    encoded = base64.b64encode(payload).decode()
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return encoded, True
    return (text, False) if len(_encoder.encode(text)) <= 2 * len(encoded) else (encoded, True)
