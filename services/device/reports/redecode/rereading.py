"""Reads the frames of a device again: history becomes what the codec makes of them now."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo import DeleteOne, ReplaceOne, UpdateOne

from libs.common.contracts.frames import Frame
from libs.common.store.mongo import Document, Mongo, Session
from services.device.codecs.worker import Call
from services.device.codecs.workers import CodecWorkers
from services.device.products.codec.known import KnownCodec
from services.device.reports.checking import FUTURE_MS
from services.device.reports.frames.judging import Judged, judge
from services.device.reports.frames.model import past_key
from services.device.reports.frames.reading import stamp_of
from services.device.reports.frames.store import FRAMES, FrameStore, frame_of
from services.device.reports.history.partitions import (
    KEY,
    LAST,
    Partitions,
    collection_name,
    history_key,
    partition_of,
)
from services.device.reports.redecode.schemas import SHOWN, Difference
from services.device.reports.redecode.store import Job
from services.device.things import Thing

CHUNK = 1000
"""Frames that are read together and written in one transaction."""


@dataclass
class Reread:
    """What became of the frames of a device."""

    read: int = 0
    changed: int = 0
    shown: list[Difference] = field(default_factory=list)
    times: set[int] = field(default_factory=set)
    """When the changed ones were received, ms."""


@dataclass(frozen=True, kw_only=True)
class Rereader:
    """Reads frames again, and writes what is otherwise."""

    mongo: Mongo
    frames: FrameStore
    partitions: Partitions
    workers: CodecWorkers
    retention_ms: int

    async def reread(self, job: Job, known: KnownCodec, thing: Thing, room: int) -> Reread:
        """Read the frames of a device that `job` is about; show up to `room` differences."""
        found, stamp = Reread(), stamp_of(known.version, thing)
        last = history_key(thing.id, job.end, LAST)
        after = history_key(thing.id, job.start, 0)
        while rows := await self.frames.unlike(stamp, after, last, CHUNK):
            after = bytes(rows[-1]["_id"]) + b"\0"
            await self._chunk(job, known, thing, stamp, rows, found, min(room, SHOWN))
        return found

    async def _chunk(
        self,
        job: Job,
        known: KnownCodec,
        thing: Thing,
        stamp: str,
        rows: Sequence[Document],
        found: Reread,
        room: int,
    ) -> None:
        judged = await self._judged(known, thing, rows)
        before = await self.partitions.at(
            bytes(key) for row in rows for key in (row["_id"], *row.get("h", ()))
        )
        writes: dict[str, list[Any]] = {}
        weeks: set[int] = set()
        for row, one in zip(rows, judged, strict=True):
            key = bytes(row["_id"])
            wanted = _wanted(key, one)
            stale = [bytes(old) for old in row.get("h", ()) if bytes(old) not in wanted]
            changed = {k: v for k, v in wanted.items() if before.get(k) != v}
            if key in before and key not in wanted:
                stale.append(key)
            if changed or stale:
                found.changed += 1
                found.times |= {KEY.unpack(each)[1] for each in (key, *changed, *stale)}
                if len(found.shown) < room:
                    found.shown.append(_difference(key, before.get(key), one))
            for each, properties in changed.items():
                weeks.add(partition_of(KEY.unpack(each)[1]))
                document = {"_id": each, "p": properties}
                writes.setdefault(_week(each), []).append(
                    ReplaceOne({"_id": each}, document, upsert=True)
                )
            for each in stale:
                writes.setdefault(_week(each), []).append(DeleteOne({"_id": each}))
            if row.get("w", "") != one.said or changed or stale or row["c"] != stamp:
                writes.setdefault(FRAMES, []).append(_frame_change(key, stamp, one, wanted))
        found.read += len(rows)
        if not job.dry and writes:
            await self.partitions.ensure(weeks)
            await self._write(writes)

    async def _judged(
        self, known: KnownCodec, thing: Thing, rows: Sequence[Document]
    ) -> list[Judged]:
        if known.codec is None:
            raise LookupError("the product has no codec any more")
        frames: list[Frame] = [frame_of(row) for row in rows]
        times = [KEY.unpack(row["_id"])[1] for row in rows]
        calls = [
            Call("decode", frame.data, frame.port, ts)
            for frame, ts in zip(frames, times, strict=True)
        ]
        outcomes = await self.workers.run(thing.tenant, known.codec, calls)
        return [
            judge(known.codec, outcome, thing.tsl, ts - self.retention_ms, ts + FUTURE_MS)
            for outcome, ts in zip(outcomes, times, strict=True)
        ]

    async def _write(self, writes: dict[str, list[Any]]) -> None:
        async def work(session: Session) -> None:
            for name, some in writes.items():
                await self.mongo.database[name].bulk_write(some, ordered=False, session=session)

        await self.mongo.transaction(work)


def _wanted(key: bytes, judged: Judged) -> dict[bytes, Document]:
    """What history has to have of a frame."""
    thing_id = KEY.unpack(key)[0]
    wanted = {past_key(thing_id, one): one.properties for one in judged.past}
    return wanted | ({key: judged.properties} if judged.properties else {})


def _week(key: bytes) -> str:
    return collection_name(partition_of(KEY.unpack(key)[1]))


def _frame_change(
    key: bytes, stamp: str, judged: Judged, wanted: dict[bytes, Document]
) -> UpdateOne:
    past = [each for each in wanted if each != key]
    fields: Document = {"c": stamp, "w": judged.said, "h": past}
    gone = {name: "" for name in ("w", "h") if not fields[name]}
    change: Document = {"$set": {name: one for name, one in fields.items() if one}}
    return UpdateOne({"_id": key}, change | ({"$unset": gone} if gone else {}))


def _difference(key: bytes, before: Document | None, judged: Judged) -> Difference:
    device, ts, _ = KEY.unpack(key)
    return Difference(
        device=device,
        ts=ts,
        before=before,
        after=judged.properties or None,
        reason=judged.said or None,
    )
