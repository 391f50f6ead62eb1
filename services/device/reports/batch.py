"""Sorts a batch of uplinks into what is to be stored, said and refused. No I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from libs.common.limits.meter import Excess
from libs.common.tsl import Fault, InvalidValues, MalformedReport, Report
from services.device.reports.uplink import MAX_PAYLOAD, Uplink, time_fault
from services.device.things import Thing

NOTHING: Mapping[int, Excess] = {}
"""No message was too much."""


class GoodReport(msgspec.Struct, frozen=True):
    """A report with at least one good property."""

    uplink: Uplink
    thing: Thing
    ts: int
    properties: dict[str, Any]
    faults: list[Fault]


class GoodEvent(msgspec.Struct, frozen=True):
    """An event of the device's TSL."""

    uplink: Uplink
    thing: Thing
    ts: int
    event_id: str
    outputs: dict[str, Any]


class Refused(msgspec.Struct, frozen=True):
    """A message refused whole, and why; `thing` is None for an unknown SN."""

    uplink: Uplink
    reason: str
    thing: Thing | None = None
    faults: list[Fault] = []
    beyond: bool = False
    """Whether it was too much for a limit: then it leaves no more than a count and an entry."""


@dataclass(slots=True)
class Batch:
    """What became of each uplink of a batch."""

    reports: list[GoodReport] = field(default_factory=list)
    events: list[GoodEvent] = field(default_factory=list)
    replies: list[tuple[Uplink, Thing]] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)

    def uplinks(self) -> Iterator[Uplink]:
        """The uplinks that the store writes something for."""
        yield from (report.uplink for report in self.reports)
        yield from (event.uplink for event in self.events)
        yield from (refused.uplink for refused in self.refused)


def sort_batch(
    uplinks: list[Uplink],
    things: Mapping[str, Thing],
    retention_ms: int,
    beyond: Mapping[int, Excess] = NOTHING,
) -> Batch:
    """Decode and validate every uplink of a batch; `beyond` are refused, by sequence."""
    batch = Batch()
    for uplink in uplinks:
        thing = things.get(uplink.sn)
        if thing is None:
            batch.refused.append(Refused(uplink, f"sn {uplink.sn} is not known"))
        elif uplink.sequence in beyond:
            reason = beyond[uplink.sequence].reason
            batch.refused.append(Refused(uplink, reason, thing, beyond=True))
        elif len(uplink.payload) > MAX_PAYLOAD:
            batch.refused.append(Refused(uplink, f"larger than {MAX_PAYLOAD} bytes", thing))
        elif uplink.channel == "report":
            _sort_report(uplink, thing, retention_ms, batch)
        elif uplink.channel == "event":
            _sort_event(uplink, thing, retention_ms, batch)
        elif uplink.channel == "reply":
            batch.replies.append((uplink, thing))
        else:
            batch.refused.append(Refused(uplink, "the subject is not one of ours", thing))
    return batch


def _sort_report(uplink: Uplink, thing: Thing, retention_ms: int, batch: Batch) -> None:
    try:
        report: Report = thing.tsl.decode_report(uplink.payload)
    except MalformedReport as error:
        batch.refused.append(Refused(uplink, error.reason, thing, error.faults))
        return
    ts = uplink.received if report.ts is None else report.ts
    late = time_fault(ts, uplink.received, retention_ms)
    if late:
        batch.refused.append(Refused(uplink, f"ts {late}", thing, [Fault("ts", late)]))
    elif not report.properties:
        reason = "; ".join(map(str, report.faults))
        batch.refused.append(Refused(uplink, reason, thing, report.faults))
    else:
        batch.reports.append(GoodReport(uplink, thing, ts, report.properties, report.faults))


def _sort_event(uplink: Uplink, thing: Thing, retention_ms: int, batch: Batch) -> None:
    try:
        event = thing.tsl.decode_event(uplink.payload)
    except (MalformedReport, InvalidValues) as error:
        batch.refused.append(Refused(uplink, str(error), thing, error.faults))
        return
    ts = uplink.received if event.ts is None else event.ts
    late = time_fault(ts, uplink.received, retention_ms)
    if late:
        batch.refused.append(Refused(uplink, f"ts {late}", thing, [Fault("ts", late)]))
    else:
        batch.events.append(GoodEvent(uplink, thing, ts, event.event_id, event.outputs))
