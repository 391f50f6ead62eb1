"""Changes of history and frames that decoding frames again makes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from pymongo import DeleteMany, InsertOne, UpdateMany, UpdateOne

from libs.common.bus.outbox import OutboxEntry
from libs.common.bus.publishing import chunks
from libs.common.store.mongo import Document, among
from services.device.lorawan.codec_scripts import Judged
from services.device.lorawan.schemas import Difference
from services.device.telemetry.batch import past_key
from services.device.telemetry.events import holds_write_only, reported
from services.device.telemetry.partitions import KEY, partition_of
from services.device.things.model import Thing

TOGETHER, LARGEST = 128, 1024 * 1024
"""Records of history that are written otherwise in one update, and bytes of their JSON; of those
BSON makes eight times as many at most, and MongoDB takes 16 MiB."""
LARGEST_SHOWN = 16 * 1024
"""Bytes of the JSON of a difference that is shown."""


_encoded = msgspec.json.Encoder(order="deterministic").encode


DecodedFrame = tuple[Document, Judged]
"""What is stored of a frame, and what the codec makes of it now."""


class _Row(NamedTuple):
    """A record that history is to have otherwise."""

    key: bytes
    properties: Document

    @property
    def payload(self) -> bytes:
        """By which it is measured."""
        return _encoded(self.properties)


@dataclass
class HistoryChanges:
    """What some frames of a device change."""

    thing: Thing
    stamp: str
    """What they are read with."""
    frames: list[UpdateOne] = field(default_factory=list)
    same: list[bytes] = field(default_factory=list)
    """Frames that remember the same, and have the same faults."""
    rows: dict[bytes, Document] = field(default_factory=dict)
    """What history has not, and is to have."""
    otherwise: dict[bytes, Document] = field(default_factory=dict)
    """What it has, and is to have otherwise."""
    unseen: dict[bytes, Document] = field(default_factory=dict)
    """What it is to have, whatever it has: it was not asked."""
    stale: set[bytes] = field(default_factory=set)
    """Keys that it is not to have any more."""
    told: list[OutboxEntry] = field(default_factory=list)

    def assume(self, frames: Iterable[DecodedFrame]) -> None:
        """Take plain frames: whatever history has, it is to have what they give now."""
        for row, one in frames:
            key = bytes(row["_id"])
            self.unseen[key] = one.properties
            self.remember(key, one, set(), same=not one.said)

    def remember(self, key: bytes, judged: Judged, past: set[bytes], *, same: bool) -> None:
        """Note what a frame was read with, and what came of it beside its report."""
        if same and not holds_write_only(judged.faults):
            self.same.append(key)
        else:
            self.frames.append(_frame_change(key, self.stamp, judged, past))

    def deletions(self) -> Iterator[tuple[int, DeleteMany]]:
        """What goes from history, or is new and may be there meanwhile, by week."""
        for week, keys in by_week((*self.stale, *self.rows)):
            yield week, DeleteMany({"_id": among(keys)})

    def replacements(self) -> Iterator[tuple[int, UpdateMany]]:
        """What becomes otherwise in history, by week."""
        return replacements(self.otherwise)

    def insertions(self) -> Iterator[tuple[int, InsertOne[Document]]]:
        """What is new in history, by week."""
        for key, properties in self.rows.items():
            yield week_of(key), InsertOne({"_id": key, "p": properties})

    def notes(self) -> Iterator[UpdateMany | UpdateOne]:
        """What is noted of the frames."""
        yield from self.frames
        if self.same:
            yield UpdateMany({"_id": among(self.same)}, {"$set": {"c": self.stamp}})


def replacements(values: Mapping[bytes, Document]) -> Iterator[tuple[int, UpdateMany]]:
    """Give records of history values, by week, some in one update: MongoDB plans each."""
    for week, keys in by_week(values):
        rows = [_Row(key, values[key]) for key in keys]
        for some in chunks(rows, TOGETHER, LARGEST):
            together = [row.key for row in some]
            place = {"$indexOfArray": [{"$literal": together}, "$_id"]}
            change = {"$arrayElemAt": [{"$literal": [row.properties for row in some]}, place]}
            yield week, UpdateMany({"_id": among(together)}, [{"$set": {"p": change}}])


def is_plain(row: Document, judged: Judged) -> bool:
    """Whether a frame makes one record of history, its report, and was not refused before."""
    return bool(judged.properties) and not judged.past and "h" not in row and "w" not in row


def wanted_rows(key: bytes, judged: Judged) -> dict[bytes, Document]:
    """What history has to have of a frame."""
    thing_id = KEY.unpack(key)[0]
    wanted = {past_key(thing_id, one): one.properties for one in judged.past}
    return wanted | ({key: judged.properties} if judged.properties else {})


def by_week(keys: Iterable[bytes]) -> Iterable[tuple[int, list[bytes]]]:
    """Return keys of history by the week of their partition."""
    weeks: dict[int, list[bytes]] = defaultdict(list)
    for key in keys:
        weeks[week_of(key)].append(key)
    return weeks.items()


def week_of(key: bytes) -> int:
    """Return the week, whose partition holds the record with this key."""
    return partition_of(KEY.unpack(key)[1])


def _frame_change(key: bytes, stamp: str, judged: Judged, past: set[bytes]) -> UpdateOne:
    fields: Document = {"c": stamp, "w": judged.said, "h": sorted(past)}
    gone = {name: "" for name in ("w", "h") if not fields[name]}
    if holds_write_only(judged.faults):
        gone["f"] = ""
    change: Document = {"$set": {name: one for name, one in fields.items() if one}}
    return UpdateOne({"_id": key}, change | ({"$unset": gone} if gone else {}))


def is_same(before: Document | None, after: Document) -> bool:
    """Whether values are the same, 1 and true told apart."""
    return before == after and _encoded(before) == _encoded(after)


def difference_of(key: bytes, before: Document | None, judged: Judged) -> Difference:
    """Return how a record of history changes, as users are shown it."""
    device, ts, _ = KEY.unpack(key)
    if len(_encoded((before, judged.properties))) > LARGEST_SHOWN:
        return Difference(device=device, ts=ts, reason="is too large to be shown")
    return Difference(
        device=device,
        ts=ts,
        before=before,
        after=judged.properties or None,
        reason=judged.said or None,
    )


def redecoded_event(
    thing: Thing, key: bytes, version: str, properties: dict[str, Any], now: int
) -> OutboxEntry:
    """The event of a report, said once for each codec."""
    _, ts, sequence = KEY.unpack(key)
    event_id = f"c-{version[:12]}-{thing.id}-{ts}-{sequence}"
    said = reported(thing, ts, properties, event_id, now)
    return OutboxEntry(said.subject, said.payload)
