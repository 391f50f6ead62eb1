"""Sorts a batch of uplinks into what is to be stored, said and refused. No I/O."""

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from libs.common.contracts.frames import Frame
from libs.common.limits.meter import Excess
from libs.common.tsl import Fault, InvalidValues, Refusal
from services.device.telemetry.partitions import history_key
from services.device.telemetry.uplink import MAX_PAYLOAD, Uplink, read_event, read_report
from services.device.things.model import Thing

LONGEST_REASON = 500
"""Characters of what is kept of the reasons why a frame is refused."""
NOTHING: Mapping[int, Excess] = {}
"""No message was too much."""


class GoodReport(msgspec.Struct, frozen=True):
    """A report with at least one good property."""

    uplink: Uplink
    thing: Thing
    ts: int
    properties: dict[str, Any]
    faults: list[Fault]

    @property
    def as_of(self) -> int:
        """When it counts as the latest: a clock that is ahead does not hold back what follows."""
        return min(self.ts, self.uplink.received)


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
    told: bool = True
    """Whether an event reports it."""


class Reading(NamedTuple):
    """Values of a moment (ms) that a device has remembered."""

    ts: int
    properties: dict[str, Any]


class KeptFrame(msgspec.Struct, frozen=True):
    """A frame that a device was heard with, and what it remembered."""

    uplink: Uplink
    thing: Thing
    frame: Frame
    ts: int
    stamp: str
    """What it was read with."""
    days: int
    """For which it is kept."""
    reason: str = ""
    """Why it, or a part of it, was refused."""
    past: list[Reading] = []
    lap: int = 0
    conceals: bool = False
    """Whether its bytes hold a write-only value, so that they must not be kept."""

    @property
    def key(self) -> bytes:
        """The key of the frame, and of its report in history."""
        return history_key(self.thing.id, self.ts, self.uplink.sequence)

    def remembered(self) -> list[tuple[bytes, Reading]]:
        """What the device remembered, with the keys in history."""
        return [(past_key(self.thing.id, one), one) for one in self.past]


def past_key(thing_id: int, reading: Reading) -> bytes:
    """The key of a reading in history: the same whenever the device tells it again."""
    names = "\n".join(sorted(reading.properties))
    return history_key(thing_id, reading.ts, zlib.crc32(names.encode()))


@dataclass(slots=True)
class Batch:
    """What became of each uplink of a batch."""

    reports: list[GoodReport] = field(default_factory=list)
    events: list[GoodEvent] = field(default_factory=list)
    replies: list[tuple[Uplink, Thing]] = field(default_factory=list)
    unread: list[tuple[Uplink, Thing]] = field(default_factory=list)
    """Frames that no codec has read yet."""
    frames: list[KeptFrame] = field(default_factory=list)
    """Those that are kept; what they report, or why they are refused, stands with the others."""
    repeated: list[Uplink] = field(default_factory=list)
    """Frames that came before: taken, with nothing to do."""
    refused: list[Refused] = field(default_factory=list)

    def uplinks(self) -> Iterator[Uplink]:
        """The uplinks that the store writes something for."""
        yield from (report.uplink for report in self.reports)
        yield from (event.uplink for event in self.events)
        yield from (refused.uplink for refused in self.refused)
        yield from (frame.uplink for frame in self.frames)
        yield from self.repeated

    def reject(self, names: Mapping[int, Collection[str]], reason: str) -> None:
        """Reject properties, named by thing id; refuse a report that has no others."""
        rejected: dict[int, list[Fault]] = defaultdict(list)

        def good(one: GoodReport | KeptFrame, properties: dict[str, Any]) -> dict[str, Any]:
            bad = [key for key in properties if key in names.get(one.thing.id, ())]
            rejected[one.uplink.sequence] += [Fault(f"properties.{key}", reason) for key in bad]
            return {key: value for key, value in properties.items() if key not in bad}

        reports, self.reports = self.reports, []
        for report in reports:
            properties = good(report, report.properties)
            faults = [*report.faults, *rejected[report.uplink.sequence]]
            if properties:
                self.reports.append(replace(report, properties=properties, faults=faults))
            else:
                text = str(InvalidValues(faults))
                self.refused.append(Refused(report.uplink, text, report.thing, faults))
        for at, frame in enumerate(self.frames):
            past = [Reading(ts, left) for ts, values in frame.past if (left := good(frame, values))]
            said = [frame.reason, *map(str, rejected[frame.uplink.sequence])]
            text = "; ".join(filter(None, said))[:LONGEST_REASON]
            self.frames[at] = replace(frame, past=past, reason=text)

    def remove_repeated(self, repeated: Collection[Uplink]) -> None:
        """Let frames that came before, which are not kept, report nothing."""
        if repeated:
            self.repeated += repeated
            gone = {uplink.sequence for uplink in repeated}
            self.reports = [one for one in self.reports if one.uplink.sequence not in gone]
            self.refused = [one for one in self.refused if one.uplink.sequence not in gone]

    def keep_only(self, uplinks: Iterable[Uplink]) -> None:
        """Keep these uplinks; the others are dealt with in another batch."""
        kept = {uplink.sequence for uplink in uplinks}
        self.reports = [one for one in self.reports if one.uplink.sequence in kept]
        self.events = [one for one in self.events if one.uplink.sequence in kept]
        self.replies = [one for one in self.replies if one[0].sequence in kept]
        self.unread = [one for one in self.unread if one[0].sequence in kept]
        self.frames = [one for one in self.frames if one.uplink.sequence in kept]
        self.repeated = [one for one in self.repeated if one.sequence in kept]
        self.refused = [one for one in self.refused if one.uplink.sequence in kept]


def remembered(frames: Iterable[KeptFrame]) -> Iterator[GoodReport]:
    """What devices remembered, as reports that nobody is told of."""
    for frame in frames:
        for ts, properties in frame.past:
            yield GoodReport(frame.uplink, frame.thing, ts, properties, [])


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
        else:
            _sort(uplink, thing, retention_ms, batch)
    return batch


def _sort(uplink: Uplink, thing: Thing, retention_ms: int, batch: Batch) -> None:
    try:
        match uplink.channel:
            case "report":
                ts, report = read_report(thing, uplink.payload, uplink.received, retention_ms)
                good = GoodReport(uplink, thing, ts, report.properties, report.faults)
                batch.reports.append(good)
            case "event":
                ts, event = read_event(thing, uplink.payload, uplink.received, retention_ms)
                batch.events.append(GoodEvent(uplink, thing, ts, event.event_id, event.outputs))
            case "reply":
                batch.replies.append((uplink, thing))
            case "frame" if not uplink.is_sent_for(thing):
                batch.refused.append(Refused(uplink, "the device has another owner now"))
            case "frame":
                batch.unread.append((uplink, thing))
            case _:
                batch.refused.append(Refused(uplink, "the subject is not one of ours", thing))
    except Refusal as error:
        batch.refused.append(Refused(uplink, str(error), thing, error.faults))
