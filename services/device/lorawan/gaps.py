"""Gaps between frames of a device, and the state of their healing.

A missing counter does not prove a lost reading: devices also count frames for the network alone. A
new session, or a counter that restarts in its session, is no gap.

All gaps are found from stored frames. Collection `gaps` (clustered) has the fields of `TrackedGap`,
for products with healing only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from pymongo import UpdateOne

from libs.common.decoding import copy_fields
from libs.common.store.mongo import Database, Session
from services.device.lorawan.frame_store import MAX_COPY_INTERVAL_MS, CountedFrame, FrameStore
from services.device.lorawan.schemas import GapRecord, GapState
from services.device.telemetry.history import KeyRange, encode_cursor
from services.device.telemetry.partitions import KEY_FORMAT, MAX_KEY_PART, history_key, keys_between
from services.device.things.deleted_things import ThingDataStore

MAX_COUNTER_GAP = 16_384
"""Maximum missing counters of a gap (LoRaWAN 1.0.3, MAX_FCNT_GAP); with more, it is a restart."""


class Gap(msgspec.Struct):
    """Missing counters between two frames."""

    key: bytes = msgspec.field(name="_id")
    """Key of the last frame before the gap."""
    start: int
    """When the last frame before the gap was received, ms."""
    end: int
    """When the first frame after the gap was received, ms."""
    counter: int
    """The first missing counter."""
    last: int
    session: bytes
    missing: int

    @property
    def frame_interval_ms(self) -> float:
        """Return the average time between two frames in ms."""
        return (self.end - self.start) / (self.last - self.counter + 2)

    def request_range_seconds(self) -> tuple[int, int] | None:
        """Return first and last second to request for the gap; None if it is too short."""
        half = self.frame_interval_ms / 2
        first, last = -int(-(self.start + half) // 1000), int((self.end - half) // 1000)
        return (first, last) if first < last else None


def find_gaps(frames: Iterable[CountedFrame]) -> list[Gap]:
    """Return the gaps between frames, which are in the order of reception."""
    gaps: list[Gap] = []
    run = 0
    newest: CountedFrame | None = None
    lower: CountedFrame | None = None
    for frame in frames:
        if newest is None or frame.session != newest.session:
            run, newest, lower = len(gaps), frame, None
        elif frame.counter > newest.counter:
            _add_gap(gaps, newest, frame)
            newest, lower = frame, None
        elif _subtract_late_frame(gaps[run:], frame):
            continue
        elif lower is None or frame.counter <= lower.counter:
            lower = frame  # late, unless the next frame continues from it
        else:
            run = len(gaps)
            _add_gap(gaps, lower, frame)
            newest, lower = frame, None
    return [gap for gap in gaps if gap.missing]


def _add_gap(gaps: list[Gap], before: CountedFrame, after: CountedFrame) -> None:
    missing = after.counter - before.counter - 1
    if 0 < missing <= MAX_COUNTER_GAP:
        first, last = before.counter + 1, after.counter - 1
        session = before.session
        gaps.append(Gap(before.key, before.ts, after.ts, first, last, session, missing))


def _subtract_late_frame(gaps: Sequence[Gap], frame: CountedFrame) -> bool:
    """Subtract a late frame from the missing counters of the gap that contains its counter.

    Returns False if no gap contains it, or if it arrived over `MAX_COPY_INTERVAL_MS` after the gap.
    """
    for gap in reversed(gaps):
        if gap.counter <= frame.counter <= gap.last:
            late = frame.ts - gap.end <= MAX_COPY_INTERVAL_MS
            gap.missing -= late
            return late
    return False


GAPS_COLLECTION = "gaps"
MAX_TRACKED_GAPS = 2000
"""Maximum number of gaps of a device that are tracked and healed."""


class TrackedGap(Gap, kw_only=True):
    """A gap and the state of its healing."""

    at: datetime
    """When this document expires."""
    state: GapState = "OPEN"
    asks: int = 0
    asked: int | None = None
    """Time of the last request to the device for the gap's readings, ms."""
    found: int | None = None
    """Number of readings within the gap that history had at the last check."""
    reason: str | None = None


class GapStore(ThingDataStore):
    """Reads and writes tracked gaps."""

    def __init__(self, database: Database) -> None:
        self._gaps = database[GAPS_COLLECTION]

    async def insert_largest(self, gaps: Sequence[Gap], until: datetime) -> None:
        """Store the largest of the new gaps of one device; they expire at `until`.

        A device has at most `MAX_TRACKED_GAPS` tracked gaps. Gaps that are tracked stay unchanged.
        """
        if not gaps:
            return
        (thing_id,) = {KEY_FORMAT.unpack(gap.key)[0] for gap in gaps}
        room = MAX_TRACKED_GAPS - await self._gaps.count_documents({"_id": keys_between(thing_id)})
        largest = sorted(gaps, key=lambda gap: gap.missing, reverse=True)[: max(room, 0)]
        writes = [_insert_operation(gap, until) for gap in largest]
        if writes:
            await self._gaps.bulk_write(writes, ordered=False)

    async def find(self, key: bytes) -> TrackedGap | None:
        """Return a tracked gap, or None."""
        return msgspec.convert(await self._gaps.find_one({"_id": key}), TrackedGap | None)

    async def list_overlapping(self, thing_id: int, start: int, end: int) -> list[TrackedGap]:
        """Return tracked gaps of a device that overlap a time range (ms)."""
        query = {"_id": keys_between(thing_id, 0, end), "end": {"$gte": start}}
        cursor = self._gaps.find(query)
        return msgspec.convert(await cursor.to_list(None), list[TrackedGap])

    async def list_largest_open(self, thing_id: int, before: int, limit: int) -> list[TrackedGap]:
        """Return up to `limit` open gaps of a device that ended by `before` (ms), largest first."""
        query = {"_id": keys_between(thing_id), "state": "OPEN", "end": {"$lte": before}}
        cursor = self._gaps.find(query, sort=[("missing", -1), ("_id", 1)], limit=limit)
        return msgspec.convert(await cursor.to_list(None), list[TrackedGap])

    async def change_fields(self, gap: TrackedGap, **changes: Any) -> None:
        """Change fields of a tracked gap, in `gap` and in MongoDB."""
        for name, value in changes.items():
            setattr(gap, name, value)
        await self._gaps.update_one({"_id": gap.key}, {"$set": changes})

    async def remove(self, gap: TrackedGap) -> None:
        """Delete a gap whose frames have arrived, or that began before the current ownership."""
        await self._gaps.delete_one({"_id": gap.key})

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the gaps of a device."""
        await self._gaps.delete_many({"_id": keys_between(thing_id)}, session=session)


def _insert_operation(gap: Gap, until: datetime) -> UpdateOne:
    tracked = copy_fields(TrackedGap, gap, at=until)
    document = msgspec.to_builtins(tracked, builtin_types=(bytes, datetime))
    return UpdateOne({"_id": document.pop("_id")}, {"$setOnInsert": document}, upsert=True)


FRAMES_PER_PAGE_READ = 2000
"""Frames that are read for a page, which may therefore be short or empty."""


@dataclass(frozen=True)
class GapService:
    """Lists gaps of devices in pages."""

    frames: FrameStore
    gaps: GapStore

    async def list_page(self, key_range: KeyRange, size: int) -> tuple[list[GapRecord], str | None]:
        """Return up to `size` gaps of a key range, newest first, and the next page's key."""
        device, first, last, continued = key_range
        if not continued:  # a gap may reach beyond the end
            after = await self.frames.list_counted(
                last, history_key(device.id, MAX_KEY_PART, MAX_KEY_PART), 1
            )
            last = after[0].key if after else last
        frames = await self.frames.list_counted(first, last, FRAMES_PER_PAGE_READ, newest=True)
        following = frames[-1].key if len(frames) == FRAMES_PER_PAGE_READ else None
        if following is None:
            owned = history_key(device.id, device.owned_since, 0)
            frames += await self.frames.list_counted(owned, _previous_key(first), 1, newest=True)
        gaps = find_gaps(reversed(frames))
        page_gaps = gaps[::-1][:size]
        if len(gaps) > size:
            following = page_gaps[-1].key
        return await self._to_records(device.id, page_gaps), encode_cursor(
            following
        ) if following else None

    async def _to_records(self, device_id: int, gaps: list[Gap]) -> list[GapRecord]:
        if not gaps:
            return []
        tracked_gaps = await self.gaps.list_overlapping(device_id, gaps[-1].start, gaps[0].end)
        return [_to_gap_record(gap, tracked_gaps) for gap in gaps]


def _previous_key(key: bytes) -> bytes:
    """Return the greatest key that is less than another."""
    return (int.from_bytes(key) - 1).to_bytes(len(key))


def _to_gap_record(gap: Gap, tracked: list[TrackedGap]) -> GapRecord:
    """Return a gap with the state of the tracked gap that contains it."""
    healing = next(
        (
            candidate
            for candidate in tracked
            if candidate.start <= gap.start and gap.end <= candidate.end
        ),
        None,
    )
    record = copy_fields(GapRecord, gap, state="OPEN")
    if healing is not None:
        for name in ("state", "asks", "asked", "found", "reason"):
            setattr(record, name, getattr(healing, name))
    return record
