"""Reads the frames of a device again: history becomes what the codec makes of them now."""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo import UpdateOne

from libs.common.bus.outbox import Outbox, OutboxEntry
from libs.common.clock import now_ms
from libs.common.store.mongo import Document, Mongo, Session, among
from services.device.codecs.worker import Call
from services.device.codecs.workers import CodecWorkers
from services.device.products.codec.known import KnownCodec
from services.device.reports.checking import FUTURE_MS
from services.device.reports.frames.judging import Judged, judge
from services.device.reports.frames.model import past_key
from services.device.reports.frames.reading import stamp_of
from services.device.reports.frames.store import FrameStore, frame_of
from services.device.reports.history.partitions import (
    KEY,
    LAST,
    Partitions,
    collection_name,
    history_key,
    partition_of,
)
from services.device.reports.messages import reported
from services.device.reports.redecode.schemas import MOST_TOLD, SHOWN, Difference
from services.device.reports.redecode.store import Job, Reread
from services.device.things import Thing

CHUNK = 1000
"""Frames that are read together and written in one transaction."""


@dataclass
class _Writes:
    """What some frames change."""

    frames: list[UpdateOne] = field(default_factory=list)
    same: list[bytes] = field(default_factory=list)
    """Frames that remember the same, and have the same faults."""
    rows: dict[bytes, Document] = field(default_factory=dict)
    """What history is to have otherwise."""
    stale: set[bytes] = field(default_factory=set)
    """Keys that it is not to have any more."""
    told: list[OutboxEntry] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Rereader:
    """Reads frames again, and writes what is otherwise."""

    mongo: Mongo
    frames: FrameStore
    written: FrameStore
    """The same, in transactions."""
    partitions: Partitions
    workers: CodecWorkers
    outbox: Outbox
    retention_ms: int

    async def reread(self, job: Job, known: KnownCodec, thing: Thing, until: float) -> Reread:
        """Read frames of a device that `job` is about until `until` (monotonic), some at least.

        Raises `LookupError` when the codec is gone.
        """
        stamp, last = stamp_of(known.version, thing), history_key(thing.id, job.end, LAST)
        found = Reread(rest=job.rest_of(thing.id))
        while not found.through:
            rows = await self.frames.unlike(stamp, found.rest, last, CHUNK)
            if rows:
                writes = await self._read(job, known, thing, rows, found)
                if not job.dry:
                    await self._write(thing, stamp, writes)
                found.rest = bytes(rows[-1]["_id"])
            found.through = len(rows) < CHUNK
            if time.monotonic() > until or found.told >= MOST_TOLD:
                break
        return found

    async def _read(
        self, job: Job, known: KnownCodec, thing: Thing, rows: Sequence[Document], found: Reread
    ) -> _Writes:
        judged = await self._judged(known, thing, rows)
        before = await self.partitions.at(
            bytes(key) for row in rows for key in (row["_id"], *row.get("h", ()))
        )
        writes, stamp, now = _Writes(), stamp_of(known.version, thing), now_ms()
        kept = set[bytes]()
        for row, one in zip(rows, judged, strict=True):
            key = bytes(row["_id"])
            wanted = _wanted(key, one)
            kept |= wanted.keys()
            changed = {k: v for k, v in wanted.items() if before.get(k) != v}
            past, told = wanted.keys() - {key}, set(map(bytes, row.get("h", ())))
            stale = told - past
            if key in before and key not in wanted:
                stale.add(key)
            if row.get("w", "") != one.said or told != past:
                writes.frames.append(_frame_change(key, stamp, one, past))
            else:
                writes.same.append(key)
            if not (changed or stale):
                continue
            writes.rows |= changed
            writes.stale |= stale
            found.changed += 1
            found.names.update(*changed.values())
            found.times |= {KEY.unpack(each)[1] for each in (key, *changed, *stale)}
            if len(job.differences) + len(found.shown) < SHOWN:
                found.shown.append(_difference(key, before.get(key), one))
            if job.tell and key in changed:
                writes.told.append(_told(thing, key, known.version, one.properties, now))
        writes.stale -= kept
        found.read += len(rows)
        found.told += len(writes.told)
        return writes

    async def _judged(
        self, known: KnownCodec, thing: Thing, rows: Sequence[Document]
    ) -> list[Judged]:
        codec = known.codec
        if codec is None:
            raise LookupError("the product has no codec any more")
        frames = [frame_of(row) for row in rows]
        times = [KEY.unpack(row["_id"])[1] for row in rows]
        calls = [
            Call("decode", frame.data, frame.port, ts)
            for frame, ts in zip(frames, times, strict=True)
        ]
        outcomes = await self.workers.run_each(thing.tenant, codec, calls)
        return [
            judge(codec, outcome, thing.tsl, ts - self.retention_ms, ts + FUTURE_MS)
            for outcome, ts in zip(outcomes, times, strict=True)
        ]

    async def _write(self, thing: Thing, stamp: str, writes: _Writes) -> None:
        """Write in one transaction; what other frames of the device remember, too, stays."""
        stale = writes.stale
        if stale:
            stale -= await self.frames.remembered(thing.id, stamp, stale)
        gone: dict[str, list[bytes]] = defaultdict(list)
        new: dict[str, list[Document]] = defaultdict(list)
        for key in (*stale, *writes.rows):
            gone[_week(key)].append(key)
        for key, properties in writes.rows.items():
            new[_week(key)].append({"_id": key, "p": properties})
        await self.partitions.ensure(partition_of(KEY.unpack(key)[1]) for key in writes.rows)

        async def work(session: Session) -> list[Document]:
            for name, keys in gone.items():
                history = self.mongo.database[name]
                await history.delete_many({"_id": among(keys)}, session=session)
                if name in new:
                    await history.insert_many(new[name], session=session)
            await self.written.reread(stamp, writes.same, writes.frames, session)
            return await self.outbox.add(writes.told, session)

        await self.outbox.relay(await self.mongo.transaction(work))


def _wanted(key: bytes, judged: Judged) -> dict[bytes, Document]:
    """What history has to have of a frame."""
    thing_id = KEY.unpack(key)[0]
    wanted = {past_key(thing_id, one): one.properties for one in judged.past}
    return wanted | ({key: judged.properties} if judged.properties else {})


def _week(key: bytes) -> str:
    return collection_name(partition_of(KEY.unpack(key)[1]))


def _frame_change(key: bytes, stamp: str, judged: Judged, past: set[bytes]) -> UpdateOne:
    fields: Document = {"c": stamp, "w": judged.said, "h": sorted(past)}
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


def _told(
    thing: Thing, key: bytes, version: str, properties: dict[str, Any], now: int
) -> OutboxEntry:
    """The event of a report, said once for each codec."""
    _, ts, sequence = KEY.unpack(key)
    event_id = f"c-{version[:12]}-{thing.id}-{ts}-{sequence}"
    said = reported(thing, ts, properties, event_id, now)
    return OutboxEntry(said.subject, said.payload)
