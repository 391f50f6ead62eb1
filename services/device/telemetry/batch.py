"""Sorts the uplinks of a batch by kind, and validates them. No I/O."""

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from libs.common.bus import OutgoingMessage
from libs.common.contracts.frames import Frame
from libs.common.limits.meter import RateExcess
from libs.common.tsl import Fault, InvalidValues, Rejection
from services.device.telemetry.partitions import history_key
from services.device.telemetry.uplink import MAX_PAYLOAD_BYTES, Uplink, read_event, read_report
from services.device.things.model import Thing

MAX_FRAME_REASON_LENGTH = 500
"""Maximum characters of the reason that is stored with a rejected frame."""
NO_EXCESSES: Mapping[int, RateExcess] = {}
"""The exceeded limits of a batch in which no uplink exceeds a limit."""


class ValidReport(msgspec.Struct, frozen=True):
    """A report with at least one valid property."""

    uplink: Uplink
    thing: Thing
    ts: int
    properties: dict[str, Any]
    faults: list[Fault]

    @property
    def effective_time(self) -> int:
        """Return the time (ms) of its latest values: `ts`, or the time of arrival if `ts` is later.
        A device clock that is ahead must not block later values.
        """
        return min(self.ts, self.uplink.received)


class ValidEvent(msgspec.Struct, frozen=True):
    """A valid event of the TSL of a thing."""

    uplink: Uplink
    thing: Thing
    ts: int
    event_id: str
    outputs: dict[str, Any]


class RejectedUplink(msgspec.Struct, frozen=True):
    """An uplink that is rejected as a whole; `thing` is None for an unknown SN or a new owner."""

    uplink: Uplink
    reason: str
    thing: Thing | None = None
    faults: list[Fault] = []
    exceeds_limit: bool = False
    """Whether it exceeds a limit. Then only a count and an entry in `DEAD` are written."""
    is_announced: bool = True
    """Whether an event reports it."""


class PastReading(NamedTuple):
    """Values that a device stored itself for a time in the past (ms) and sent later."""

    ts: int
    properties: dict[str, Any]


class KeptFrame(msgspec.Struct, frozen=True):
    """A decoded frame, with the readings of the past that it contains."""

    uplink: Uplink
    thing: Thing
    frame: Frame
    ts: int
    stamp: str
    """The version of the codec and TSL that decoded it."""
    days: int
    """Days that it is kept."""
    reason: str = ""
    """Why it, or a part of it, was rejected."""
    past: list[PastReading] = []
    lap: int = 0
    conceals: bool = False
    """Whether its bytes hold a write-only value and must not be stored."""

    @property
    def key(self) -> bytes:
        """Return the key of the frame, and of its report in history."""
        return history_key(self.thing.id, self.ts, self.uplink.sequence)

    def past_readings(self) -> list[tuple[bytes, PastReading]]:
        """Return the frame's readings of the past with their keys in history."""
        return [(past_reading_key(self.thing.id, reading), reading) for reading in self.past]


def past_reading_key(thing_id: int, reading: PastReading) -> bytes:
    """Return the key of a past reading in history; a repeated reading has the same key."""
    names = "\n".join(sorted(reading.properties))
    return history_key(thing_id, reading.ts, zlib.crc32(names.encode()))


@dataclass(slots=True)
class Batch:
    """The sorted uplinks of a batch."""

    reports: list[ValidReport] = field(default_factory=list)
    events: list[ValidEvent] = field(default_factory=list)
    replies: list[tuple[Uplink, Thing]] = field(default_factory=list)
    undecoded: list[tuple[Uplink, Thing]] = field(default_factory=list)
    """Frames that no codec has decoded yet."""
    frames: list[KeptFrame] = field(default_factory=list)
    """Decoded frames to store; their reports and rejections are in the other lists."""
    duplicates: list[Uplink] = field(default_factory=list)
    """Frames that were stored before; they are counted only."""
    rejected: list[RejectedUplink] = field(default_factory=list)
    confirmed: list[ValidReport] = field(default_factory=list)
    """The stored properties that replies have confirmed."""
    closing_events: list[OutgoingMessage] = field(default_factory=list)
    """The events of commands that replies have closed."""

    def uplinks_to_store(self) -> Iterator[Uplink]:
        """Yield the uplinks that `BatchStore.store` stores or only counts: all but replies."""
        yield from (report.uplink for report in self.reports)
        yield from (event.uplink for event in self.events)
        yield from (rejected.uplink for rejected in self.rejected)
        yield from (frame.uplink for frame in self.frames)
        yield from self.duplicates

    def reject_properties(self, names: Mapping[int, Collection[str]], reason: str) -> None:
        """Reject the properties in `names`, by thing id, and reports without other properties."""
        rejected: dict[int, list[Fault]] = defaultdict(list)

        def remove_rejected(
            source: ValidReport | KeptFrame, properties: dict[str, Any]
        ) -> dict[str, Any]:
            bad = [key for key in properties if key in names.get(source.thing.id, ())]
            rejected[source.uplink.sequence] += [Fault(f"properties.{key}", reason) for key in bad]
            return {key: value for key, value in properties.items() if key not in bad}

        reports, self.reports = self.reports, []
        for report in reports:
            properties = remove_rejected(report, report.properties)
            faults = [*report.faults, *rejected[report.uplink.sequence]]
            if properties:
                self.reports.append(replace(report, properties=properties, faults=faults))
            else:
                text = str(InvalidValues(faults))
                self.rejected.append(RejectedUplink(report.uplink, text, report.thing, faults))
        for index, frame in enumerate(self.frames):
            past = [
                PastReading(ts, valid)
                for ts, values in frame.past
                if (valid := remove_rejected(frame, values))
            ]
            reasons = [frame.reason, *map(str, rejected[frame.uplink.sequence])]
            text = "; ".join(filter(None, reasons))[:MAX_FRAME_REASON_LENGTH]
            self.frames[index] = replace(frame, past=past, reason=text)

    def move_to_duplicates(self, repeated: Collection[Uplink]) -> None:
        """Move frames that were stored before from reports and rejections to duplicates."""
        if repeated:
            self.duplicates += repeated
            removed = {uplink.sequence for uplink in repeated}
            self.reports = [
                report for report in self.reports if report.uplink.sequence not in removed
            ]
            self.rejected = [
                rejected for rejected in self.rejected if rejected.uplink.sequence not in removed
            ]

    def keep_only(self, uplinks: Iterable[Uplink]) -> None:
        """Keep only these uplinks; another batch processes the others."""
        kept_sequences = {uplink.sequence for uplink in uplinks}
        self.reports = [
            report for report in self.reports if report.uplink.sequence in kept_sequences
        ]
        self.events = [event for event in self.events if event.uplink.sequence in kept_sequences]
        self.replies = [reply for reply in self.replies if reply[0].sequence in kept_sequences]
        self.undecoded = [pair for pair in self.undecoded if pair[0].sequence in kept_sequences]
        self.frames = [frame for frame in self.frames if frame.uplink.sequence in kept_sequences]
        self.duplicates = [
            uplink for uplink in self.duplicates if uplink.sequence in kept_sequences
        ]
        self.rejected = [
            rejected for rejected in self.rejected if rejected.uplink.sequence in kept_sequences
        ]


def past_reports(frames: Iterable[KeptFrame]) -> Iterator[ValidReport]:
    """Yield the past readings of frames as reports, which are not announced."""
    for frame in frames:
        for ts, properties in frame.past:
            yield ValidReport(frame.uplink, frame.thing, ts, properties, [])


def build_batch(
    uplinks: list[Uplink],
    things: Mapping[str, Thing],
    retention_ms: int,
    excesses: Mapping[int, RateExcess] = NO_EXCESSES,
) -> Batch:
    """Validate the uplinks of a batch and sort them by kind; reject uplinks over a limit.

    Frames and replies are not decoded yet. `excesses` are the exceeded limits, by sequence of the
    uplink.
    """
    batch = Batch()
    for uplink in uplinks:
        thing = things.get(uplink.sn)
        if thing is None:
            batch.rejected.append(
                RejectedUplink(uplink, f"there is no device with the SN {uplink.sn}")
            )
        elif uplink.sequence in excesses:
            reason = excesses[uplink.sequence].reason
            batch.rejected.append(RejectedUplink(uplink, reason, thing, exceeds_limit=True))
        elif len(uplink.payload) > MAX_PAYLOAD_BYTES:
            batch.rejected.append(
                RejectedUplink(uplink, f"larger than {MAX_PAYLOAD_BYTES} bytes", thing)
            )
        else:
            _validate_uplink(uplink, thing, retention_ms, batch)
    return batch


def _validate_uplink(uplink: Uplink, thing: Thing, retention_ms: int, batch: Batch) -> None:
    try:
        match uplink.channel:
            case "report":
                ts, report = read_report(thing, uplink.payload, uplink.received, retention_ms)
                good = ValidReport(uplink, thing, ts, report.properties, report.faults)
                batch.reports.append(good)
            case "event":
                ts, event = read_event(thing, uplink.payload, uplink.received, retention_ms)
                batch.events.append(ValidEvent(uplink, thing, ts, event.event_id, event.outputs))
            case "reply":
                batch.replies.append((uplink, thing))
            case "frame" if not uplink.is_addressed_to(thing):
                batch.rejected.append(RejectedUplink(uplink, "the device has a new owner"))
            case "frame":
                batch.undecoded.append((uplink, thing))
            case _:
                batch.rejected.append(RejectedUplink(uplink, "the subject is unknown", thing))
    except Rejection as error:
        batch.rejected.append(RejectedUplink(uplink, str(error), thing, error.faults))
