"""Changes of history and frames by a re-decode job."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from pymongo import DeleteMany, InsertOne, UpdateMany, UpdateOne

from libs.common.bus.outbox import OutboxEntry
from libs.common.bus.publishing import split_messages
from libs.common.store.mongo import Document, build_key_condition
from services.device.lorawan.codec_scripts import DecodeResult
from services.device.lorawan.schemas import RedecodeDifference
from services.device.telemetry.batch import past_reading_key
from services.device.telemetry.events import concerns_write_only, reported_event
from services.device.telemetry.partitions import KEY_FORMAT, partition_number
from services.device.things.model import Thing

MAX_RECORDS, MAX_BYTES = 128, 1024 * 1024
"""Maximum records of one update, and maximum bytes of their JSON.

BSON is at most 8 times larger, and MongoDB accepts 16 MiB.
"""
MAX_DIFFERENCE_BYTES = 16 * 1024
"""Maximum bytes of the JSON of a difference."""


_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


FrameAndResult = tuple[Document, DecodeResult]
"""A stored frame and the result of decoding it now."""


class _Replacement(NamedTuple):
    """The new values of a record of history."""

    key: bytes
    properties: Document

    @property
    def payload(self) -> bytes:
        return _encode_sorted(self.properties)


@dataclass
class HistoryChanges:
    """Changes that decoding frames of one device again causes."""

    thing: Thing
    stamp: str
    """Versions of codec and TSL, as `format_decoder_versions` writes them."""
    frames: list[UpdateOne] = field(default_factory=list)
    same: list[bytes] = field(default_factory=list)
    """Keys of frames with the same past readings and faults as before."""
    rows: dict[bytes, Document] = field(default_factory=dict)
    """Records that history lacks."""
    updated: dict[bytes, Document] = field(default_factory=dict)
    """Records whose values differ."""
    overwritten: dict[bytes, Document] = field(default_factory=dict)
    """Records that are overwritten (or inserted) without reading them first."""
    stale: set[bytes] = field(default_factory=set)
    """Keys of records to delete."""
    events: list[OutboxEntry] = field(default_factory=list)

    def add_frames_to_overwrite(self, frames: Iterable[FrameAndResult]) -> None:
        """Add frames whose only record in history is overwritten without reading it first."""
        for row, result in frames:
            key = bytes(row["_id"])
            self.overwritten[key] = result.properties
            self.add_frame_update(key, result, set(), same=not result.rejection_reason)

    def add_frame_update(
        self, key: bytes, result: DecodeResult, past: set[bytes], *, same: bool
    ) -> None:
        """Add the update of a stored frame: its versions, fault and past readings."""
        if same and not concerns_write_only(result.faults):
            self.same.append(key)
        else:
            self.frames.append(_frame_update(key, self.stamp, result, past))

    def deletions_by_week(self) -> Iterator[tuple[int, DeleteMany]]:
        """Yield deletions of stale records, and of records about to be inserted."""
        for week, keys in group_by_week((*self.stale, *self.rows)):
            yield week, DeleteMany({"_id": build_key_condition(keys)})

    def replacements_by_week(self) -> Iterator[tuple[int, UpdateMany]]:
        """Yield replacements of changed records, by week."""
        return build_replacements_by_week(self.updated)

    def insertions_by_week(self) -> Iterator[tuple[int, InsertOne[Document]]]:
        """Yield insertions of missing records, by week."""
        for key, properties in self.rows.items():
            yield key_week(key), InsertOne({"_id": key, "p": properties})

    def frame_updates(self) -> Iterator[UpdateMany | UpdateOne]:
        """Yield updates of the stored frames."""
        yield from self.frames
        if self.same:
            yield UpdateMany({"_id": build_key_condition(self.same)}, {"$set": {"c": self.stamp}})


def build_replacements_by_week(
    values: Mapping[bytes, Document],
) -> Iterator[tuple[int, UpdateMany]]:
    """Yield updates that replace the values of records, by week.

    Several records share one update, because MongoDB plans each update separately.
    """
    for week, keys in group_by_week(values):
        rows = [_Replacement(key, values[key]) for key in keys]
        for chunk in split_messages(rows, MAX_RECORDS, MAX_BYTES):
            together = [row.key for row in chunk]
            place = {"$indexOfArray": [{"$literal": together}, "$_id"]}
            change = {"$arrayElemAt": [{"$literal": [row.properties for row in chunk]}, place]}
            yield (
                week,
                UpdateMany({"_id": build_key_condition(together)}, [{"$set": {"p": change}}]),
            )


def has_one_accepted_record(row: Document, result: DecodeResult) -> bool:
    """Return whether a frame had and has one record in history, and was not rejected before."""
    return bool(result.properties) and not result.past and "h" not in row and "w" not in row


def expected_records(key: bytes, result: DecodeResult) -> dict[bytes, Document]:
    """Return the records that history must contain for a frame, by key."""
    thing_id = KEY_FORMAT.unpack(key)[0]
    records = {past_reading_key(thing_id, reading): reading.properties for reading in result.past}
    return records | ({key: result.properties} if result.properties else {})


def group_by_week(keys: Iterable[bytes]) -> Iterable[tuple[int, list[bytes]]]:
    """Group keys of history by the week of their partition."""
    weeks: dict[int, list[bytes]] = defaultdict(list)
    for key in keys:
        weeks[key_week(key)].append(key)
    return weeks.items()


def key_week(key: bytes) -> int:
    """Return the week whose partition holds the record with this key."""
    return partition_number(KEY_FORMAT.unpack(key)[1])


def _frame_update(key: bytes, stamp: str, result: DecodeResult, past: set[bytes]) -> UpdateOne:
    fields: Document = {"c": stamp, "w": result.rejection_reason, "h": sorted(past)}
    removed_fields = {name: "" for name in ("w", "h") if not fields[name]}
    if concerns_write_only(result.faults):
        removed_fields["f"] = ""
    change: Document = {"$set": {name: value for name, value in fields.items() if value}}
    return UpdateOne({"_id": key}, change | ({"$unset": removed_fields} if removed_fields else {}))


def equals_exactly(before: Document | None, after: Document) -> bool:
    """Return whether values are equal; 1 and true differ."""
    return before == after and _encode_sorted(before) == _encode_sorted(after)


def build_difference(
    key: bytes, before: Document | None, result: DecodeResult
) -> RedecodeDifference:
    """Return how a record of history changes, in the form that users are shown."""
    device, ts, _ = KEY_FORMAT.unpack(key)
    if len(_encode_sorted((before, result.properties))) > MAX_DIFFERENCE_BYTES:
        return RedecodeDifference(device=device, ts=ts, reason="too large to be shown")
    return RedecodeDifference(
        device=device,
        ts=ts,
        before=before,
        after=result.properties or None,
        reason=result.rejection_reason or None,
    )


def build_redecoded_event(
    thing: Thing, key: bytes, version: str, properties: dict[str, Any], now: int
) -> OutboxEntry:
    """Return the outbox entry of a report's event, whose id contains the codec version."""
    _, ts, sequence = KEY_FORMAT.unpack(key)
    event_id = f"c-{version[:12]}-{thing.id}-{ts}-{sequence}"
    event = reported_event(thing, ts, properties, event_id, now)
    return OutboxEntry(event.subject, event.payload)
