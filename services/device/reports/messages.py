"""What ingest says on the bus: an event per report, and `DEAD` for what was refused."""

import base64
from collections.abc import Iterator

import msgspec

from libs.common.bus import Outgoing
from libs.common.bus.hops import hops_header, hops_of
from libs.common.bus.subjects import dead_uplink, device_event, thing_event
from libs.common.clock import now_ms
from libs.common.contracts.events import (
    Dead,
    DeviceEventReported,
    Fault,
    PropertiesRejected,
    PropertiesReported,
)
from libs.common.tsl import Fault as TslFault
from services.device.reports.batch import Batch, GoodEvent, GoodReport
from services.device.reports.uplink import Uplink
from services.device.things import Thing

KEPT_PAYLOAD = 64 * 1024
"""Bytes of a refused message that `DEAD` keeps."""
MOST_FAULTS = 100
"""Faults that one event lists: a report may have more than fit in a NATS message."""
LONGEST_REASON = 4000
"""Characters of a reason in `DEAD`."""

_encoder = msgspec.json.Encoder()


def batch_messages(batch: Batch) -> Iterator[Outgoing]:
    """Every message that a stored batch causes; the same ones at every redelivery."""
    now = now_ms()
    for report in batch.reports:
        yield reported(report, now)
        if report.faults:
            yield _rejected(report.uplink, report.thing, report.ts, report.faults, now)
    for event in batch.events:
        yield _event(event, now)
    for refused in batch.refused:
        yield dead(refused.uplink, refused.reason)
        if refused.thing is not None:
            faults = refused.faults or [TslFault("", refused.reason)]
            yield _rejected(refused.uplink, refused.thing, refused.uplink.received, faults, now)


def _subject(thing: Thing, what: str) -> str:
    name = device_event if thing.device else thing_event
    return name(thing.tenant, thing.id, what)


def reported(report: GoodReport, now: int) -> Outgoing:
    """`event.{tenant}.(device|thing).{id}.reported`."""
    thing = report.thing
    event_id = f"r-{report.uplink.key}"
    body = PropertiesReported(
        event_id=event_id,
        created_at=now,
        tenant=thing.tenant,
        device=thing.profile,
        ts=report.ts,
        properties=report.properties,
    )
    headers = hops_header(hops_of(report.uplink.message.headers))
    return Outgoing(_subject(thing, "reported"), _encoder.encode(body), event_id, headers)


def _rejected(uplink: Uplink, thing: Thing, ts: int, faults: list[TslFault], now: int) -> Outgoing:
    event_id = f"x-{uplink.key}"
    listed = [Fault(fault.path, fault.reason) for fault in faults[:MOST_FAULTS]]
    if len(faults) > MOST_FAULTS:
        listed.append(Fault("", f"and {len(faults) - MOST_FAULTS} more"))
    body = PropertiesRejected(
        event_id=event_id,
        created_at=now,
        tenant=thing.tenant,
        device=thing.profile,
        ts=ts,
        faults=listed,
    )
    subject = _subject(thing, "rejected")
    return Outgoing(subject, _encoder.encode(body), event_id)


def _event(event: GoodEvent, now: int) -> Outgoing:
    thing = event.thing
    spec = thing.tsl.event(event.event_id)
    event_id = f"e-{event.uplink.key}"
    body = DeviceEventReported(
        event_id=event_id,
        created_at=now,
        tenant=thing.tenant,
        device=thing.profile,
        ts=event.ts,
        tsl_id=event.event_id,
        event_type=str(spec.type) if spec and spec.type else "INFO",
        outputs=event.outputs,
    )
    subject = _subject(thing, "event")
    return Outgoing(subject, _encoder.encode(body), event_id)


def dead(uplink: Uplink, reason: str) -> Outgoing:
    """`dead.uplink.{sn}`: the message and why it was refused."""
    kept = uplink.payload[:KEPT_PAYLOAD]
    try:
        text, encoded = kept.decode(), False
    except UnicodeDecodeError:
        text, encoded = base64.b64encode(kept).decode(), True
    body = Dead(
        reason=reason[:LONGEST_REASON],
        subject=uplink.message.subject,
        sequence=uplink.sequence,
        received_at=uplink.received,
        payload=text,
        base64=encoded,
        truncated=len(uplink.payload) > KEPT_PAYLOAD,
    )
    return Outgoing(dead_uplink(uplink.sn), _encoder.encode(body), f"d-{uplink.key}")
