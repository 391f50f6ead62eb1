"""Gaps between the frames of a device: finds them, and keeps what became of them.

A device counts all that it sends, also what it sends for the network alone: a counter that is
missing is no proof of a lost reading. A new session, and a counter that begins anew in its session,
are no gaps.

What became of gaps, in MongoDB: `gaps`, clustered, with the fields of `KeptGap`.

Only gaps of products that heal are here; all of them are found in the frames.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import msgspec
from pymongo import UpdateOne

from libs.common.decoding import copy_fields
from libs.common.identity import Principal
from libs.common.store.mongo import Database, Session
from services.device.lorawan.frame_store import SAME_MS, CountedFrame, FrameStore
from services.device.lorawan.schemas import FindGaps, FoundGaps, GapPage, GapRecord, GapState
from services.device.telemetry.history import Window, Windows, encode_key
from services.device.telemetry.partitions import KEY, LAST, history_key, keys_between
from services.device.things.deleted_things import ThingDataStore

MOST_JUMP = 16_384
"""Counters that may be missing in a row (LoRaWAN 1.0.3, MAX_FCNT_GAP); after more it began anew."""


@dataclass(slots=True)
class Gap:
    """Counters that are missing between two frames."""

    key: bytes
    """Of the frame before it."""
    start: int
    """When that was received, ms."""
    end: int
    """When the frame after it was received, ms."""
    counter: int
    """The first one that is missing."""
    last: int
    session: bytes
    missing: int

    @property
    def interval(self) -> float:
        """Milliseconds from one of its frames to the next, if they were sent evenly."""
        return (self.end - self.start) / (self.last - self.counter + 2)

    def within(self) -> tuple[int, int] | None:
        """Its first and last whole second, half an interval away from its edges; None for none."""
        half = self.interval / 2
        first, last = -int(-(self.start + half) // 1000), int((self.end - half) // 1000)
        return (first, last) if first < last else None


def find_gaps(frames: Iterable[CountedFrame]) -> list[Gap]:
    """The gaps between frames, which come in the order in which they were received."""
    found: list[Gap] = []
    run = 0
    newest: CountedFrame | None = None
    lower: CountedFrame | None = None
    for frame in frames:
        if newest is None or frame.session != newest.session:
            run, newest, lower = len(found), frame, None
        elif frame.counter > newest.counter:
            _add(found, newest, frame)
            newest, lower = frame, None
        elif _is_late(found[run:], frame):
            continue
        elif lower is None or frame.counter <= lower.counter:
            lower = frame  # late too, unless the next one goes on from it
        else:
            run = len(found)
            _add(found, lower, frame)
            newest, lower = frame, None
    return [gap for gap in found if gap.missing]


def _add(found: list[Gap], before: CountedFrame, after: CountedFrame) -> None:
    missing = after.counter - before.counter - 1
    if 0 < missing <= MOST_JUMP:
        first, last = before.counter + 1, after.counter - 1
        session = before.session
        found.append(Gap(before.key, before.ts, after.ts, first, last, session, missing))


def _is_late(gaps: Sequence[Gap], frame: CountedFrame) -> bool:
    """Whether a frame closes a part of a gap."""
    for gap in reversed(gaps):
        if gap.counter <= frame.counter <= gap.last:
            late = frame.ts - gap.end <= SAME_MS
            gap.missing -= late
            return late
    return False


GAPS = "gaps"
MOST_KEPT = 2000
"""Gaps of a device that are kept: what comes beyond is not healed."""


class KeptGap(msgspec.Struct, kw_only=True):
    """A gap, and what became of it."""

    key: bytes = msgspec.field(name="_id")
    """Of the frame before it."""
    start: int
    """When that was received, ms."""
    end: int
    counter: int
    last: int
    session: bytes
    missing: int
    at: datetime
    """When this goes."""
    state: GapState = "OPEN"
    asks: int = 0
    asked: int | None = None
    """When the device was asked last, ms."""
    found: int | None = None
    """Readings that history had in it when it was looked at last."""
    reason: str | None = None

    @property
    def gap(self) -> Gap:
        """The gap by itself."""
        counters = (self.counter, self.last, self.session, self.missing)
        return Gap(self.key, self.start, self.end, *counters)


class GapStore(ThingDataStore):
    """Reads and writes what became of gaps."""

    def __init__(self, database: Database) -> None:
        self._gaps = database[GAPS]

    async def keep(self, gaps: Sequence[Gap], until: datetime) -> None:
        """Keep new gaps of a device, the largest that there is room for."""
        if not gaps:
            return
        (thing_id,) = {KEY.unpack(gap.key)[0] for gap in gaps}
        room = MOST_KEPT - await self._gaps.count_documents({"_id": keys_between(thing_id)})
        largest = sorted(gaps, key=lambda gap: gap.missing, reverse=True)[: max(room, 0)]
        writes = [_insert(gap, until) for gap in largest]
        if writes:
            await self._gaps.bulk_write(writes, ordered=False)

    async def find(self, key: bytes) -> KeptGap | None:
        """What is kept of a gap."""
        return msgspec.convert(await self._gaps.find_one({"_id": key}), KeptGap | None)

    async def overlapping(self, thing_id: int, start: int, end: int) -> list[KeptGap]:
        """Those of a device that are kept and overlap a time (ms)."""
        query = {"_id": keys_between(thing_id, 0, end), "end": {"$gte": start}}
        found = self._gaps.find(query)
        return msgspec.convert(await found.to_list(None), list[KeptGap])

    async def largest(self, thing_id: int, before: int, limit: int) -> list[KeptGap]:
        """Open gaps of a device that ended before a time (ms), the largest first."""
        query = {"_id": keys_between(thing_id), "state": "OPEN", "end": {"$lte": before}}
        found = self._gaps.find(query, sort=[("missing", -1), ("_id", 1)], limit=limit)
        return msgspec.convert(await found.to_list(None), list[KeptGap])

    async def change(self, gap: KeptGap, **changes: Any) -> None:
        """Write what has become of a gap."""
        for name, value in changes.items():
            setattr(gap, name, value)
        await self._gaps.update_one({"_id": gap.key}, {"$set": changes})

    async def remove(self, gap: KeptGap) -> None:
        """Remove one that is closed: its frames have arrived."""
        await self._gaps.delete_one({"_id": gap.key})

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the gaps of a device."""
        await self._gaps.delete_many({"_id": keys_between(thing_id)}, session=session)


def _insert(gap: Gap, until: datetime) -> UpdateOne:
    kept = KeptGap(**asdict(gap), at=until)
    document = msgspec.to_builtins(kept, builtin_types=(bytes, datetime))
    return UpdateOne({"_id": document.pop("_id")}, {"$setOnInsert": document}, upsert=True)


SCANNED = 2000
"""Frames that are looked at for a page: with a key for the next one it may be short, or empty."""


@dataclass(frozen=True)
class GapService:
    """Answers who may see the device."""

    frames: FrameStore
    gaps: GapStore
    windows: Windows

    async def page(
        self,
        principal: Principal,
        device_id: int,
        start: int | None,
        end: int | None,
        size: int,
        key: str | None,
    ) -> GapPage:
        """A page for an application; raises as `Windows`."""
        window = await self.windows.of_application(principal, device_id, start, end, key)
        records, following = await self._page(window, size)
        return GapPage(list=records, page_size=size, next_page_key=following)

    async def find(self, principal: Principal, device_id: int, wanted: FindGaps) -> FoundGaps:
        """A page for a user; raises as `Windows`."""
        bounds = (wanted.start_timestamp, wanted.end_timestamp, wanted.next_key)
        window = await self.windows.of_user(principal, device_id, *bounds)
        records, following = await self._page(window, wanted.page_size)
        return FoundGaps(content=records, next_key=following)

    async def _page(self, window: Window, size: int) -> tuple[list[GapRecord], str | None]:
        device, first, last, continued = window
        if not continued:  # a gap may reach beyond the end
            after = await self.frames.counters(last, history_key(device.id, LAST, LAST), 1)
            last = after[0].key if after else last
        frames = await self.frames.counters(first, last, SCANNED, newest=True)
        following = frames[-1].key if len(frames) == SCANNED else None
        if following is None:
            owned = history_key(device.id, device.owned_since, 0)
            frames += await self.frames.counters(owned, _before(first), 1, newest=True)
        gaps = find_gaps(reversed(frames))
        shown = gaps[::-1][:size]
        if len(gaps) > size:
            following = shown[-1].key
        return await self._records(device.id, shown), encode_key(following) if following else None

    async def _records(self, device_id: int, gaps: list[Gap]) -> list[GapRecord]:
        if not gaps:
            return []
        kept = await self.gaps.overlapping(device_id, gaps[-1].start, gaps[0].end)
        return [_record(gap, kept) for gap in gaps]


def _before(key: bytes) -> bytes:
    """The last key below another."""
    return (int.from_bytes(key) - 1).to_bytes(len(key))


def _record(gap: Gap, kept: list[KeptGap]) -> GapRecord:
    """A gap with what became of it, or of the one that it is left of."""
    there = next((one for one in kept if one.start <= gap.start and gap.end <= one.end), None)
    record = copy_fields(GapRecord, gap, state="OPEN")
    if there is not None:
        for name in ("state", "asks", "asked", "found", "reason"):
            setattr(record, name, getattr(there, name))
    return record
