"""Reads the frames of devices again: history becomes what the codec makes of them now."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from pymongo import DeleteMany, InsertOne, UpdateMany, UpdateOne

from libs.common.bus.outbox import Outbox, OutboxEntry
from libs.common.bus.publishing import chunks
from libs.common.clock import now_ms
from libs.common.store.mongo import Document, Mongo, Session, among
from services.device.codecs.worker import Call
from services.device.codecs.workers import CodecWorkers
from services.device.products.codec.known import KnownCodec
from services.device.reports.frames.judging import Judged, judge
from services.device.reports.frames.reading import stamp_of
from services.device.reports.frames.store import FrameStore, frame_of
from services.device.reports.redecode.schemas import MOST_TOLD, SHOWN, Difference
from services.device.reports.redecode.store import Job, Reread
from services.device.telemetry.batch import past_key
from services.device.telemetry.events import holds_write_only, reported
from services.device.telemetry.partitions import (
    KEY,
    LAST,
    Partitions,
    collection_name,
    history_key,
    partition_of,
)
from services.device.telemetry.uplink import FUTURE_MS
from services.device.things.model import Thing

CHUNK = 2000
"""Frames that are read together and written in one transaction."""
TOGETHER, LARGEST = 128, 1024 * 1024
"""Records of history that are written otherwise in one update, and bytes of their JSON; of those
BSON makes eight times as many at most, and MongoDB takes 16 MiB."""
LARGEST_SHOWN = 16 * 1024
"""Bytes of the JSON of a difference that is shown."""


_encoded = msgspec.json.Encoder(order="deterministic").encode


_Frame = tuple[Document, Judged]
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
class _Writes:
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

    def assume(self, frames: Iterable[_Frame]) -> None:
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
        for week, keys in _weeks((*self.stale, *self.rows)):
            yield week, DeleteMany({"_id": among(keys)})

    def replacements(self) -> Iterator[tuple[int, UpdateMany]]:
        """What becomes otherwise in history, by week."""
        return _replacements(self.otherwise)

    def insertions(self) -> Iterator[tuple[int, InsertOne[Document]]]:
        """What is new in history, by week."""
        for key, properties in self.rows.items():
            yield _week(key), InsertOne({"_id": key, "p": properties})

    def notes(self) -> Iterator[UpdateMany | UpdateOne]:
        """What is noted of the frames."""
        yield from self.frames
        if self.same:
            yield UpdateMany({"_id": among(self.same)}, {"$set": {"c": self.stamp}})


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
    ) -> list[_Writes]:
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
            one = _Writes(thing, stamp_of(known.version, thing))
            one.assume(plain)
            found[thing.id].read += len(plain)
            self._sort(job, known.version, looked, before, one, found[thing.id])
            writes.append(one)
        return writes

    @staticmethod
    def _parted(
        job: Job, found: Reread, frames: Iterable[_Frame]
    ) -> tuple[list[_Frame], list[_Frame]]:
        """The frames of a device of which it matters what history has, and the others."""
        if job.dry or job.tell or _shows(job, found):
            return list(frames), []
        looked, plain = list[_Frame](), list[_Frame]()
        for frame in frames:
            (plain if _is_plain(*frame) else looked).append(frame)
        return looked, plain

    async def _before(self, frames: Iterable[_Frame]) -> dict[bytes, Document]:
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
        frames: Iterable[_Frame],
        before: Mapping[bytes, Document],
        writes: _Writes,
        found: Reread,
    ) -> None:
        """Sort out what frames of a device change."""
        now = now_ms()
        kept = set(writes.unseen)
        for row, one in frames:
            key = bytes(row["_id"])
            wanted = _wanted(key, one)
            kept.update(wanted)
            changed = {k: v for k, v in wanted.items() if not _is_same(before.get(k), v)}
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
                found.shown.append(_difference(key, shown or None, one))
            if job.tell and key in changed:
                writes.told.append(_told(writes.thing, key, version, one.properties, now))
        writes.stale -= kept
        found.told += len(writes.told)

    async def _write(self, writes: Sequence[_Writes], found: Mapping[int, Reread]) -> None:
        """Write in one transaction; what other frames of a device remember, too, stays."""
        for one in writes:
            if one.stale:
                one.stale -= await self.frames.remembered(one.thing.id, one.stamp, one.stale)
        history: dict[int, list[DeleteMany | UpdateMany | InsertOne[Document]]] = defaultdict(list)
        for kind in (_Writes.deletions, _Writes.replacements, _Writes.insertions):
            for week, change in (each for one in writes for each in kind(one)):
                history[week].append(change)
        await self.partitions.ensure(
            _week(key) for one in writes for key in (*one.rows, *one.unseen)
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

    async def _assume(self, writes: Sequence[_Writes], session: Session) -> int:
        """Write what was not looked at; how many records became otherwise.

        Only where history turns out to lack some it is looked up which.
        """
        weeks: dict[int, list[UpdateMany]] = defaultdict(list)
        for week, change in (each for one in writes for each in _replacements(one.unseen)):
            weeks[week].append(change)
        matched = changed = 0
        for week, changes in weeks.items():
            partition = self.mongo.database[collection_name(week)]
            done = await partition.bulk_write(changes, session=session)
            matched, changed = matched + done.matched_count, changed + done.modified_count
        if matched == sum(len(one.unseen) for one in writes):
            return changed
        for one in writes:
            for week, keys in _weeks(one.unseen):
                partition = self.mongo.database[collection_name(week)]
                rows = partition.find({"_id": among(keys)}, {"_id": 1}, session=session)
                lacks = set(keys) - {bytes(row["_id"]) async for row in rows}
                if lacks:
                    new = [{"_id": key, "p": one.unseen[key]} for key in lacks]
                    await partition.insert_many(new, session=session)
                changed += len(lacks)
        return changed

    @staticmethod
    def _count(changed: int, writes: Sequence[_Writes], found: Mapping[int, Reread]) -> None:
        """Some of what was not looked at has become otherwise: any of it may be that.

        Who counts adds the devices up, so one of them has all.
        """
        assumed = [one for one in writes if one.unseen]
        found[assumed[0].thing.id].changed += changed
        for one in assumed:
            reread = found[one.thing.id]
            reread.names.update(*one.unseen.values())
            reread.times.update(KEY.unpack(key)[1] for key in one.unseen)


def _replacements(values: Mapping[bytes, Document]) -> Iterator[tuple[int, UpdateMany]]:
    """Give records of history values, by week, some in one update: MongoDB plans each."""
    for week, keys in _weeks(values):
        rows = [_Row(key, values[key]) for key in keys]
        for some in chunks(rows, TOGETHER, LARGEST):
            together = [row.key for row in some]
            place = {"$indexOfArray": [{"$literal": together}, "$_id"]}
            change = {"$arrayElemAt": [{"$literal": [row.properties for row in some]}, place]}
            yield week, UpdateMany({"_id": among(together)}, [{"$set": {"p": change}}])


def _call(row: Document) -> Call:
    frame, (_, ts, _) = frame_of(row), KEY.unpack(row["_id"])
    return Call("decode", frame.data, frame.port, ts)


def _shows(job: Job, found: Reread) -> bool:
    """Whether differences of a device are shown still."""
    return len(job.differences) + len(found.shown) < SHOWN


def _is_plain(row: Document, judged: Judged) -> bool:
    """Whether a frame makes one record of history, its report, and was not refused before."""
    return bool(judged.properties) and not judged.past and "h" not in row and "w" not in row


def _wanted(key: bytes, judged: Judged) -> dict[bytes, Document]:
    """What history has to have of a frame."""
    thing_id = KEY.unpack(key)[0]
    wanted = {past_key(thing_id, one): one.properties for one in judged.past}
    return wanted | ({key: judged.properties} if judged.properties else {})


def _weeks(keys: Iterable[bytes]) -> Iterable[tuple[int, list[bytes]]]:
    weeks: dict[int, list[bytes]] = defaultdict(list)
    for key in keys:
        weeks[_week(key)].append(key)
    return weeks.items()


def _week(key: bytes) -> int:
    return partition_of(KEY.unpack(key)[1])


def _frame_change(key: bytes, stamp: str, judged: Judged, past: set[bytes]) -> UpdateOne:
    fields: Document = {"c": stamp, "w": judged.said, "h": sorted(past)}
    gone = {name: "" for name in ("w", "h") if not fields[name]}
    if holds_write_only(judged.faults):
        gone["f"] = ""
    change: Document = {"$set": {name: one for name, one in fields.items() if one}}
    return UpdateOne({"_id": key}, change | ({"$unset": gone} if gone else {}))


def _is_same(before: Document | None, after: Document) -> bool:
    """Whether values are the same, 1 and true told apart."""
    return before == after and _encoded(before) == _encoded(after)


def _difference(key: bytes, before: Document | None, judged: Judged) -> Difference:
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


def _told(
    thing: Thing, key: bytes, version: str, properties: dict[str, Any], now: int
) -> OutboxEntry:
    """The event of a report, said once for each codec."""
    _, ts, sequence = KEY.unpack(key)
    event_id = f"c-{version[:12]}-{thing.id}-{ts}-{sequence}"
    said = reported(thing, ts, properties, event_id, now)
    return OutboxEntry(said.subject, said.payload)
