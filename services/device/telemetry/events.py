"""Events of reports, dead messages, and write-only values in them."""

import base64
import math
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from libs.common.bus import OutgoingMessage
from libs.common.bus.fitting import fitted
from libs.common.bus.hops import hops_header, read_hops
from libs.common.bus.subjects import dead_uplink, device_event, thing_event
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
from services.device.telemetry.batch import Batch, GoodEvent, GoodReport
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing

REPLY_SHOWN = ("commandId", "status")


def holds_write_only(faults: Iterable[TslFault]) -> bool:
    """Return whether what was refused of a message is, or may hold, a write-only value."""
    return any(fault.code == "write_only" or fault.args.get("value") == MASK for fault in faults)


def masked_payload(uplink: Uplink, thing: Thing | None, faults: Iterable[TslFault]) -> bytes:
    """Return a refused message with a mask in the place of its write-only values.

    Of a frame, and of a message that cannot be read, nothing is left. Of a reply only its
    command and status are: an error or outputs may repeat what the command has set.
    """
    if thing is None or not thing.tsl.conceals:
        return uplink.payload
    if uplink.channel == "frame":
        return MASK.encode() if holds_write_only(faults) else uplink.payload
    try:
        message = msgspec.json.decode(uplink.payload)
        return msgspec.json.encode(_masked(uplink.channel, message, thing.tsl))
    except (ValueError, RecursionError):
        return MASK.encode()


def _masked(channel: str, message: Any, tsl: Tsl) -> Any:
    if not isinstance(message, dict):
        return MASK
    if channel == "reply":
        shown = {key: message[key] for key in REPLY_SHOWN if key in message}
        return dict.fromkeys(message, MASK) | {
            key: value for key, value in shown.items() if isinstance(value, int | str)
        }
    properties = message.get("properties")
    masked = tsl.masked(message)
    if channel == "report" and properties is not None:
        masked["properties"] = tsl.masked(properties) if isinstance(properties, dict) else MASK
    return masked


KEPT_PAYLOAD = 64 * 1024
"""Bytes of a refused message that `DEAD` keeps."""
MOST_FAULTS = 100
"""Faults that one event lists."""
FAULT_BYTES = 32 * 1024
"""Bytes of JSON of the faults that one event lists."""
LONGEST_FAULT = 500
"""Characters of a path or a reason there."""
LONGEST_REASON = 4000
"""Characters of a reason in `DEAD`."""

_LARGEST = 2**63

_encoder = msgspec.json.Encoder()


def batch_events(batch: Batch) -> Iterator[OutgoingMessage]:
    """Every event that a stored batch causes; the same ones at every redelivery."""
    now = now_ms()
    for report in batch.reports:
        yield _reported(report, now)
        if report.faults:
            yield _rejected(report.uplink, report.thing, report.ts, report.faults, now)
    for event in batch.events:
        yield _event(event, now)
    for refused in batch.refused:
        if refused.thing is not None and refused.told and not refused.beyond:
            faults = refused.faults or [TslFault("", refused.reason)]
            at = refused.uplink.received
            yield _rejected(refused.uplink, refused.thing, at, faults, now, whole=True)


def _subject(thing: Thing, what: str) -> str:
    name = device_event if thing.device else thing_event
    return name(thing.tenant, thing.id, what)


def _header(thing: Thing, ts: int, event_id: str, now: int) -> dict[str, Any]:
    """What the events of a thing begin with; times are ms."""
    return {
        "event_id": event_id,
        "created_at": now,
        "tenant": thing.tenant,
        "device": thing.profile,
        "ts": ts,
    }


def _reported(report: GoodReport, now: int) -> OutgoingMessage:
    headers = hops_header(read_hops(report.uplink.message.headers))
    headers |= trace_header(report.uplink.trace)
    event_id = f"r-{report.uplink.key}"
    return reported(report.thing, report.ts, report.properties, event_id, now, headers)


def reported(
    thing: Thing,
    ts: int,
    properties: dict[str, Any],
    event_id: str,
    now: int,
    headers: dict[str, str] | None = None,
) -> OutgoingMessage:
    """`event.{tenant}.(device|thing).{id}.reported`; times are ms."""
    body = PropertiesReported(**_header(thing, ts, event_id, now), properties=properties)
    return OutgoingMessage(_subject(thing, "reported"), fitted(body), event_id, headers or {})


def _rejected(
    uplink: Uplink,
    thing: Thing,
    ts: int,
    faults: list[TslFault],
    now: int,
    *,
    whole: bool = False,
) -> OutgoingMessage:
    event_id = f"x-{uplink.key}"
    header = _header(thing, ts, event_id, now)
    body = PropertiesRejected(**header, faults=_listed(faults), whole=whole)
    subject = _subject(thing, "rejected")
    return OutgoingMessage(subject, fitted(body), event_id, trace_header(uplink.trace))


def _listed(faults: list[TslFault]) -> list[Fault]:
    """As many faults as an event has room for, and how many more there are."""
    listed: list[Fault] = []
    left = FAULT_BYTES
    for fault in faults[:MOST_FAULTS]:
        value = _plain(fault.args.get("value"))
        short = Fault(fault.path[:LONGEST_FAULT], fault.reason[:LONGEST_FAULT], value)
        left -= len(_encoder.encode(short))
        if left < 0:
            break
        listed.append(short)
    if len(listed) < len(faults):
        listed.append(Fault("", f"and {len(faults) - len(listed)} more"))
    return listed


def _plain(value: object) -> bool | int | float | str | None:
    """A value as an event shows it; None for what is no scalar, or a number beyond 64 bits."""
    if isinstance(value, str):
        return value[:LONGEST_FAULT]
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) < _LARGEST):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None


def _event(event: GoodEvent, now: int) -> OutgoingMessage:
    thing = event.thing
    spec = thing.tsl.event(event.event_id)
    event_id = f"e-{event.uplink.key}"
    body = DeviceEventReported(
        **_header(thing, event.ts, event_id, now),
        tsl_id=event.event_id,
        event_type=str(spec.type) if spec and spec.type else "INFO",
        outputs=event.outputs,
    )
    subject = _subject(thing, "event")
    return OutgoingMessage(subject, fitted(body), event_id, trace_header(event.uplink.trace))


def dead(
    uplink: Uplink, thing: Thing | None, reason: str, faults: list[TslFault]
) -> OutgoingMessage:
    """`dead.uplink.{sn}`: the message, without write-only values, and why it was refused."""
    payload = masked_payload(uplink, thing, faults)
    text, encoded = _as_text(payload[:KEPT_PAYLOAD])
    body = Dead(
        reason=reason[:LONGEST_REASON],
        subject=uplink.message.subject,
        sequence=uplink.sequence,
        received_at=uplink.received,
        payload=text,
        base64=encoded,
        truncated=len(payload) > KEPT_PAYLOAD,
        faults=_listed(faults),
    )
    return OutgoingMessage(dead_uplink(uplink.sn), _encoder.encode(body), f"d-{uplink.key}")


def dead_summary(uplink: Uplink, number: int, most: int) -> OutgoingMessage:
    """`dead.uplink.{sn}`: that refused messages are not kept; `uplink` is the latest."""
    body = Dead(
        reason=f"{number} refused messages are not kept: more than {most} bytes of them in a day",
        subject=uplink.message.subject,
        sequence=uplink.sequence,
        received_at=uplink.received,
        payload="",
        truncated=True,
    )
    return OutgoingMessage(dead_uplink(uplink.sn), _encoder.encode(body), f"n-{uplink.key}")


def _as_text(kept: bytes) -> tuple[str, bool]:
    """A payload as text; as base64, which the flag tells, when it is much shorter in JSON."""
    encoded = base64.b64encode(kept).decode()
    try:
        text = kept.decode()
    except UnicodeDecodeError:
        return encoded, True
    return (text, False) if len(_encoder.encode(text)) <= 2 * len(encoded) else (encoded, True)
