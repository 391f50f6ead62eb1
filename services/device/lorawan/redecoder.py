"""Decodes stored frames again and replaces history by the new results."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pymongo import DeleteMany, InsertOne, UpdateMany

from libs.common.bus.outbox import Outbox
from libs.common.clock import now_ms
from libs.common.store.mongo import Document, Mongo, Session, build_key_condition
from services.device.lorawan.codec_cache import CachedCodec
from services.device.lorawan.codec_calls import CodecCall
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import DecodeResult, check_decoded_frame
from services.device.lorawan.frame_decoder import format_decoder_versions
from services.device.lorawan.frame_store import FrameStore, decode_frame
from services.device.lorawan.redecode_changes import (
    FrameAndResult,
    HistoryChanges,
    build_difference,
    build_redecoded_event,
    build_replacements_by_week,
    equals_exactly,
    expected_records,
    group_by_week,
    has_one_accepted_record,
    key_week,
)
from services.device.lorawan.redecode_service import DeviceProgress, RedecodeJob
from services.device.lorawan.schemas import MAX_DIFFERENCES, MAX_REPUBLISHED
from services.device.telemetry.partitions import (
    KEY_FORMAT,
    MAX_KEY_PART,
    Partitions,
    collection_name,
    history_key,
)
from services.device.telemetry.uplink import MAX_CLOCK_AHEAD_MS
from services.device.things.model import Thing

FRAMES_PER_BATCH = 2000
"""Frames that are read together and written in one transaction."""


@dataclass(frozen=True, kw_only=True)
class Redecoder:
    """Decodes stored frames of devices again and stores the differences."""

    mongo: Mongo
    frames: FrameStore
    partitions: Partitions
    workers: CodecWorkers
    outbox: Outbox
    retention_ms: int

    async def redecode(
        self, job: RedecodeJob, cached: CachedCodec, things: Iterable[Thing], until: float
    ) -> dict[int, DeviceProgress]:
        """Re-decode frames of `things` for `job` until `until` (monotonic seconds).

        At least one batch is decoded. Stops early at `MAX_REPUBLISHED` reports. Returns the
        progress by device id. Raises `LookupError` when the product has no codec any more.
        """
        pending = list(things)
        progresses = {
            thing.id: DeviceProgress(last_key=self._resume_key(job, thing)) for thing in pending
        }
        while pending:
            limit = FRAMES_PER_BATCH // len(pending)
            rows = await asyncio.gather(
                *(
                    self.frames.find_outdated_or_rejected(
                        format_decoder_versions(cached.version, thing),
                        progresses[thing.id].last_key,
                        history_key(thing.id, job.end, MAX_KEY_PART),
                        limit,
                    )
                    for thing in pending
                )
            )
            writes = await self._decode_to_changes(
                job, cached, list(zip(pending, rows, strict=True)), progresses
            )
            if writes and not job.dry:
                await self._write_changes(writes, progresses)
            for thing, frames in zip(pending, rows, strict=True):
                progresses[thing.id].is_finished = len(frames) < limit
                if frames:
                    progresses[thing.id].last_key = bytes(frames[-1]["_id"])
            pending = [thing for thing in pending if not progresses[thing.id].is_finished]
            republished = sum(progress.republished for progress in progresses.values())
            if time.monotonic() > until or job.told + republished >= MAX_REPUBLISHED:
                break
        return progresses

    def _resume_key(self, job: RedecodeJob, thing: Thing) -> bytes:
        """Return the key to resume at, within current ownership and retention."""
        oldest = max(thing.owned_since, now_ms() - self.retention_ms)
        return max(job.resume_key(thing.id), history_key(thing.id, oldest, 0))

    async def _decode_to_changes(
        self,
        job: RedecodeJob,
        cached: CachedCodec,
        frames: Sequence[tuple[Thing, Sequence[Document]]],
        progresses: Mapping[int, DeviceProgress],
    ) -> list[HistoryChanges]:
        frames = [(thing, rows) for thing, rows in frames if rows]
        decoded = await self._decode_frames(cached, job.tenant, frames)
        parted = [
            self._split_to_compare_and_overwrite(
                job, progresses[thing.id], zip(rows, results, strict=True)
            )
            for (thing, rows), results in zip(frames, decoded, strict=True)
        ]
        history = await asyncio.gather(*(self._find_history(looked) for looked, _ in parted))
        writes = []
        for (thing, _), (looked, plain), before in zip(frames, parted, history, strict=True):
            changes = HistoryChanges(thing, format_decoder_versions(cached.version, thing))
            changes.add_frames_to_overwrite(plain)
            progresses[thing.id].read += len(plain)
            self._collect_changes(
                job, cached.version, looked, before, changes, progresses[thing.id]
            )
            writes.append(changes)
        return writes

    @staticmethod
    def _split_to_compare_and_overwrite(
        job: RedecodeJob, progress: DeviceProgress, frames: Iterable[FrameAndResult]
    ) -> tuple[list[FrameAndResult], list[FrameAndResult]]:
        """Return the frames to compare with history, and those whose records are overwritten."""
        if job.dry or job.tell or _keeps_differences(job, progress):
            return list(frames), []
        looked, plain = list[FrameAndResult](), list[FrameAndResult]()
        for frame in frames:
            (plain if has_one_accepted_record(*frame) else looked).append(frame)
        return looked, plain

    async def _find_history(self, frames: Iterable[FrameAndResult]) -> dict[bytes, Document]:
        return await self.partitions.find_properties(
            bytes(key) for row, _ in frames for key in (row["_id"], *row.get("h", ()))
        )

    async def _decode_frames(
        self, cached: CachedCodec, tenant: str, frames: Sequence[tuple[Thing, Sequence[Document]]]
    ) -> list[list[DecodeResult]]:
        codec = cached.codec
        if codec is None:
            raise LookupError("the product has no codec")
        calls = [_decode_call(row) for _, rows in frames for row in rows]
        outcomes = await self.workers.run_despite_crashes(tenant, codec, calls)
        called = zip(calls, outcomes, strict=True)
        return [
            [
                check_decoded_frame(
                    codec,
                    outcome,
                    thing.tsl,
                    call.at - self.retention_ms,
                    call.at + MAX_CLOCK_AHEAD_MS,
                )
                for call, outcome in islice(called, len(rows))
            ]
            for thing, rows in frames
        ]

    @staticmethod
    def _collect_changes(
        job: RedecodeJob,
        version: str,
        frames: Iterable[FrameAndResult],
        before: Mapping[bytes, Document],
        writes: HistoryChanges,
        progress: DeviceProgress,
    ) -> None:
        now = now_ms()
        kept_keys = set(writes.overwritten)
        for row, result in frames:
            key = bytes(row["_id"])
            records = expected_records(key, result)
            kept_keys.update(records)
            changed = {k: v for k, v in records.items() if not equals_exactly(before.get(k), v)}
            past, stored_past = records.keys() - {key}, set(map(bytes, row.get("h", ())))
            stale = stored_past - past
            if key in before and key not in records:
                stale.add(key)
            same = row.get("w", "") == result.rejection_reason and stored_past == past
            writes.add_frame_update(key, result, past, same=same)
            progress.read += 1
            if not (changed or stale):
                continue
            for each, properties in changed.items():
                (writes.updated if each in before else writes.rows)[each] = properties
            writes.stale |= stale
            progress.changed += 1
            progress.changed_properties.update(*changed.values())
            progress.changed_times |= {
                KEY_FORMAT.unpack(each)[1] for each in (key, *changed, *stale)
            }
            if _keeps_differences(job, progress):
                readable = key in before and writes.thing.tsl.readable(before[key])
                progress.differences.append(build_difference(key, readable or None, result))
            if job.tell and key in changed:
                event = build_redecoded_event(writes.thing, key, version, result.properties, now)
                writes.events.append(event)
        writes.stale -= kept_keys
        progress.republished += len(writes.events)

    async def _write_changes(
        self, writes: Sequence[HistoryChanges], progresses: Mapping[int, DeviceProgress]
    ) -> None:
        """Write all changes in one transaction.

        A past reading that another frame of the device contains, too, is kept.
        """
        for write in writes:
            if write.stale:
                write.stale -= await self.frames.filter_past_keys(
                    write.thing.id, write.stamp, write.stale
                )
        history: dict[int, list[DeleteMany | UpdateMany | InsertOne[Document]]] = defaultdict(list)
        for kind in (
            HistoryChanges.deletions_by_week,
            HistoryChanges.replacements_by_week,
            HistoryChanges.insertions_by_week,
        ):
            for week, change in (each for write in writes for each in kind(write)):
                history[week].append(change)
        await self.partitions.ensure(
            key_week(key) for write in writes for key in (*write.rows, *write.overwritten)
        )
        notes = [note for write in writes for note in write.frame_updates()]
        events = [entry for write in writes for entry in write.events]

        async def write_in_session(session: Session) -> tuple[int, list[Document]]:
            for week, changes in history.items():
                partition = self.mongo.database[collection_name(week)]
                await partition.bulk_write(changes, session=session)
            changed = await self._overwrite_records(writes, session)
            await self.frames.apply_updates(notes, session)
            return changed, await self.outbox.store_entries(events, session)

        changed, entries = await self.mongo.transaction(write_in_session)
        await self.outbox.publish_stored(entries)
        if changed:
            self._count_overwritten_records(changed, writes, progresses)

    async def _overwrite_records(self, writes: Sequence[HistoryChanges], session: Session) -> int:
        """Overwrite records without reading them first; return how many changed.

        Missing records are looked up only when MongoDB matched fewer than expected.
        """
        weeks: dict[int, list[UpdateMany]] = defaultdict(list)
        for week, change in (
            each for write in writes for each in build_replacements_by_week(write.overwritten)
        ):
            weeks[week].append(change)
        matched = changed = 0
        for week, changes in weeks.items():
            partition = self.mongo.database[collection_name(week)]
            done = await partition.bulk_write(changes, session=session)
            matched, changed = matched + done.matched_count, changed + done.modified_count
        if matched == sum(len(write.overwritten) for write in writes):
            return changed
        for write in writes:
            for week, keys in group_by_week(write.overwritten):
                partition = self.mongo.database[collection_name(week)]
                rows = partition.find(
                    {"_id": build_key_condition(keys)}, {"_id": 1}, session=session
                )
                lacks = set(keys) - {bytes(row["_id"]) async for row in rows}
                if lacks:
                    new = [{"_id": key, "p": write.overwritten[key]} for key in lacks]
                    await partition.insert_many(new, session=session)
                changed += len(lacks)
        return changed

    @staticmethod
    def _count_overwritten_records(
        changed: int, writes: Sequence[HistoryChanges], progresses: Mapping[int, DeviceProgress]
    ) -> None:
        """Add the changed records that were overwritten to the progress of their devices.

        MongoDB reports how many records changed, not which. The sum over devices is what counts, so
        one device gets all of them.
        """
        overwritten = [write for write in writes if write.overwritten]
        progresses[overwritten[0].thing.id].changed += changed
        for write in overwritten:
            progress = progresses[write.thing.id]
            progress.changed_properties.update(*write.overwritten.values())
            progress.changed_times.update(KEY_FORMAT.unpack(key)[1] for key in write.overwritten)


def _decode_call(row: Document) -> CodecCall:
    frame, (_, ts, _) = decode_frame(row), KEY_FORMAT.unpack(row["_id"])
    return CodecCall("decode", frame.data, frame.port, ts)


def _keeps_differences(job: RedecodeJob, progress: DeviceProgress) -> bool:
    """Return whether the job still collects differences to show."""
    return len(job.differences) + len(progress.differences) < MAX_DIFFERENCES
