"""Reads the frames of devices again: history becomes what the codec makes of them now."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pymongo import DeleteMany, InsertOne, UpdateMany

from libs.common.bus.outbox import Outbox
from libs.common.clock import now_ms
from libs.common.store.mongo import Document, Mongo, Session, among
from services.device.lorawan.codec_cache import KnownCodec
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import Judged, judge
from services.device.lorawan.codec_worker import Call
from services.device.lorawan.frame_decoder import stamp_of
from services.device.lorawan.frame_store import FrameStore, frame_of
from services.device.lorawan.redecode_changes import (
    DecodedFrame,
    HistoryChanges,
    by_week,
    difference_of,
    is_plain,
    is_same,
    redecoded_event,
    replacements,
    wanted_rows,
    week_of,
)
from services.device.lorawan.redecode_service import Job, Reread
from services.device.lorawan.schemas import MOST_TOLD, SHOWN
from services.device.telemetry.partitions import (
    KEY,
    LAST,
    Partitions,
    collection_name,
    history_key,
)
from services.device.telemetry.uplink import FUTURE_MS
from services.device.things.model import Thing

CHUNK = 2000
"""Frames that are read together and written in one transaction."""


@dataclass(frozen=True, kw_only=True)
class Rereader:
    """Reads frames again, and writes what is otherwise."""

    mongo: Mongo
    frames: FrameStore
    partitions: Partitions
    workers: CodecWorkers
    outbox: Outbox
    retention_ms: int

    async def reread(
        self, job: Job, known: KnownCodec, things: Iterable[Thing], until: float
    ) -> dict[int, Reread]:
        """Read frames of devices that `job` is about until `until` (monotonic), some at least.

        Raises `LookupError` when the codec is gone.
        """
        left = list(things)
        found = {thing.id: Reread(rest=self._rest(job, thing)) for thing in left}
        while left:
            limit = CHUNK // len(left)
            rows = await asyncio.gather(
                *(self._unlike(job, known, one, found[one.id].rest, limit) for one in left)
            )
            writes = await self._read(job, known, list(zip(left, rows, strict=True)), found)
            if writes and not job.dry:
                await self._write(writes, found)
            for thing, some in zip(left, rows, strict=True):
                found[thing.id].through = len(some) < limit
                if some:
                    found[thing.id].rest = bytes(some[-1]["_id"])
            left = [thing for thing in left if not found[thing.id].through]
            told = sum(one.told for one in found.values())
            if time.monotonic() > until or job.told + told >= MOST_TOLD:
                break
        return found

    def _rest(self, job: Job, thing: Thing) -> bytes:
        """The key after which it goes on: at its owner's, and within the retention of history."""
        oldest = max(thing.owned_since, now_ms() - self.retention_ms)
        return max(job.rest_of(thing.id), history_key(thing.id, oldest, 0))

    async def _unlike(
        self, job: Job, known: KnownCodec, thing: Thing, after: bytes, limit: int
    ) -> list[Document]:
        last = history_key(thing.id, job.end, LAST)
        return await self.frames.unlike(stamp_of(known.version, thing), after, last, limit)

    async def _read(
        self,
        job: Job,
        known: KnownCodec,
        frames: Sequence[tuple[Thing, Sequence[Document]]],
        found: Mapping[int, Reread],
    ) -> list[HistoryChanges]:
        """What frames of devices change."""
        frames = [(thing, rows) for thing, rows in frames if rows]
        judged = await self._judged(known, job.tenant, frames)
        parted = [
            self._parted(job, found[thing.id], zip(rows, some, strict=True))
            for (thing, rows), some in zip(frames, judged, strict=True)
        ]
        history = await asyncio.gather(*(self._before(looked) for looked, _ in parted))
        writes = []
        for (thing, _), (looked, plain), before in zip(frames, parted, history, strict=True):
            one = HistoryChanges(thing, stamp_of(known.version, thing))
            one.assume(plain)
            found[thing.id].read += len(plain)
            self._sort(job, known.version, looked, before, one, found[thing.id])
            writes.append(one)
        return writes

    @staticmethod
    def _parted(
        job: Job, found: Reread, frames: Iterable[DecodedFrame]
    ) -> tuple[list[DecodedFrame], list[DecodedFrame]]:
        """The frames of a device of which it matters what history has, and the others."""
        if job.dry or job.tell or _shows(job, found):
            return list(frames), []
        looked, plain = list[DecodedFrame](), list[DecodedFrame]()
        for frame in frames:
            (plain if is_plain(*frame) else looked).append(frame)
        return looked, plain

    async def _before(self, frames: Iterable[DecodedFrame]) -> dict[bytes, Document]:
        """What history has of frames."""
        return await self.partitions.at(
            bytes(key) for row, _ in frames for key in (row["_id"], *row.get("h", ()))
        )

    async def _judged(
        self, known: KnownCodec, tenant: str, frames: Sequence[tuple[Thing, Sequence[Document]]]
    ) -> list[list[Judged]]:
        """What the codec makes of frames of devices now."""
        codec = known.codec
        if codec is None:
            raise LookupError("the product has no codec any more")
        calls = [_call(row) for _, rows in frames for row in rows]
        outcomes = await self.workers.run_each(tenant, codec, calls)
        called = zip(calls, outcomes, strict=True)
        return [
            [
                judge(codec, outcome, thing.tsl, call.at - self.retention_ms, call.at + FUTURE_MS)
                for call, outcome in islice(called, len(rows))
            ]
            for thing, rows in frames
        ]

    @staticmethod
    def _sort(
        job: Job,
        version: str,
        frames: Iterable[DecodedFrame],
        before: Mapping[bytes, Document],
        writes: HistoryChanges,
        found: Reread,
    ) -> None:
        """Sort out what frames of a device change."""
        now = now_ms()
        kept = set(writes.unseen)
        for row, one in frames:
            key = bytes(row["_id"])
            wanted = wanted_rows(key, one)
            kept.update(wanted)
            changed = {k: v for k, v in wanted.items() if not is_same(before.get(k), v)}
            past, told = wanted.keys() - {key}, set(map(bytes, row.get("h", ())))
            stale = told - past
            if key in before and key not in wanted:
                stale.add(key)
            same = row.get("w", "") == one.said and told == past
            writes.remember(key, one, past, same=same)
            found.read += 1
            if not (changed or stale):
                continue
            for each, properties in changed.items():
                (writes.otherwise if each in before else writes.rows)[each] = properties
            writes.stale |= stale
            found.changed += 1
            found.names.update(*changed.values())
            found.times |= {KEY.unpack(each)[1] for each in (key, *changed, *stale)}
            if _shows(job, found):
                shown = key in before and writes.thing.tsl.readable(before[key])
                found.shown.append(difference_of(key, shown or None, one))
            if job.tell and key in changed:
                writes.told.append(redecoded_event(writes.thing, key, version, one.properties, now))
        writes.stale -= kept
        found.told += len(writes.told)

    async def _write(self, writes: Sequence[HistoryChanges], found: Mapping[int, Reread]) -> None:
        """Write in one transaction; what other frames of a device remember, too, stays."""
        for one in writes:
            if one.stale:
                one.stale -= await self.frames.remembered(one.thing.id, one.stamp, one.stale)
        history: dict[int, list[DeleteMany | UpdateMany | InsertOne[Document]]] = defaultdict(list)
        for kind in (
            HistoryChanges.deletions,
            HistoryChanges.replacements,
            HistoryChanges.insertions,
        ):
            for week, change in (each for one in writes for each in kind(one)):
                history[week].append(change)
        await self.partitions.ensure(
            week_of(key) for one in writes for key in (*one.rows, *one.unseen)
        )
        notes = [note for one in writes for note in one.notes()]
        told = [entry for one in writes for entry in one.told]

        async def work(session: Session) -> tuple[int, list[Document]]:
            for week, changes in history.items():
                partition = self.mongo.database[collection_name(week)]
                await partition.bulk_write(changes, session=session)
            changed = await self._assume(writes, session)
            await self.frames.note(notes, session)
            return changed, await self.outbox.add(told, session)

        changed, entries = await self.mongo.transaction(work)
        await self.outbox.relay(entries)
        if changed:
            self._count(changed, writes, found)

    async def _assume(self, writes: Sequence[HistoryChanges], session: Session) -> int:
        """Write what was not looked at; how many records became otherwise.

        Only where history turns out to lack some it is looked up which.
        """
        weeks: dict[int, list[UpdateMany]] = defaultdict(list)
        for week, change in (each for one in writes for each in replacements(one.unseen)):
            weeks[week].append(change)
        matched = changed = 0
        for week, changes in weeks.items():
            partition = self.mongo.database[collection_name(week)]
            done = await partition.bulk_write(changes, session=session)
            matched, changed = matched + done.matched_count, changed + done.modified_count
        if matched == sum(len(one.unseen) for one in writes):
            return changed
        for one in writes:
            for week, keys in by_week(one.unseen):
                partition = self.mongo.database[collection_name(week)]
                rows = partition.find({"_id": among(keys)}, {"_id": 1}, session=session)
                lacks = set(keys) - {bytes(row["_id"]) async for row in rows}
                if lacks:
                    new = [{"_id": key, "p": one.unseen[key]} for key in lacks]
                    await partition.insert_many(new, session=session)
                changed += len(lacks)
        return changed

    @staticmethod
    def _count(changed: int, writes: Sequence[HistoryChanges], found: Mapping[int, Reread]) -> None:
        """Some of what was not looked at has become otherwise: any of it may be that.

        Who counts adds the devices up, so one of them has all.
        """
        assumed = [one for one in writes if one.unseen]
        found[assumed[0].thing.id].changed += changed
        for one in assumed:
            reread = found[one.thing.id]
            reread.names.update(*one.unseen.values())
            reread.times.update(KEY.unpack(key)[1] for key in one.unseen)


def _call(row: Document) -> Call:
    frame, (_, ts, _) = frame_of(row), KEY.unpack(row["_id"])
    return Call("decode", frame.data, frame.port, ts)


def _shows(job: Job, found: Reread) -> bool:
    """Whether differences of a device are shown still."""
    return len(job.differences) + len(found.shown) < SHOWN
