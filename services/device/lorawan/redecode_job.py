"""Worker of re-decode jobs: tenants take turns, and so do products of a tenant.

One replica runs the worker. Decoding the frames of a device twice changes nothing the second time.
Each job, unless it is dry, has two passes: the second covers frames that ingest decoded with the
previous codec while the new codec was being distributed.
"""

import asyncio
import logging
import time
from collections import ChainMap
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from libs.common.clock import now_ms
from libs.common.scheduling.turns import TenantSteps, take_turns
from libs.common.store.mongo import Collection, Document, StoreError
from services.device.lorawan.codec_cache import CachedCodec, CodecCache
from services.device.lorawan.redecode_service import (
    REDECODES_COLLECTION,
    DeviceProgress,
    RedecodeJob,
    RedecodeStore,
)
from services.device.lorawan.redecoder import Redecoder
from services.device.lorawan.schemas import MAX_REPUBLISHED
from services.device.telemetry.device_fields import DeviceFieldUpdater
from services.device.telemetry.folded_values import ReportTuple, RewrittenHistory
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.partitions import (
    KEY_FORMAT,
    Partitions,
    collection_name,
    keys_between,
    partition_number,
)
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory
from services.device.things.model import Thing

log = logging.getLogger(__name__)

CONCURRENT_TENANTS = 4
"""Tenants whose jobs run at the same time."""
QUERY_INTERVAL_SECONDS = 0.5
"""Seconds between two queries for jobs."""
INGEST_SETTLED_MS = 15_000
"""Time after the start of a job by which ingest has stored all frames of the previous codec."""
DEVICES_PER_LOOKUP = 192
"""Devices whose ids are read together."""
CONCURRENT_READS, DEVICES_PER_WRITE = 32, 8
"""Devices whose frames are read at the same time, and devices of one transaction."""
ROWS_PER_READ = 1000
"""History records that are read together."""
TURN_SECONDS = 0.5
"""Seconds of a turn; a batch that has begun is completed."""
CODEC_CHANGED_FAULT = "the codec was changed while the job was running"
TOO_MANY_REPORTS_FAULT = (
    f"{MAX_REPUBLISHED} reports were published again, the maximum: "
    "select fewer devices or less time"
)


@dataclass(frozen=True, kw_only=True)
class RedecodeWorker:
    """Runs re-decode jobs."""

    store: RedecodeStore
    redecoder: Redecoder
    codecs: CodecCache
    devices: DeviceStore
    things: ThingDirectory
    latest: LatestValues
    device_fields: DeviceFieldUpdater
    partitions: Partitions
    settled_ms: int = INGEST_SETTLED_MS

    async def run(self) -> None:
        """Run until cancelled."""
        tenants = partial(self.store.list_due_tenants, self.settled_ms)
        wake = self.store.wakeups.create_event(REDECODES_COLLECTION)
        await take_turns(
            "redecode",
            CONCURRENT_TENANTS,
            tenants,
            self.run_jobs,
            QUERY_INTERVAL_SECONDS,
            wake,
            tenants,
        )

    async def run_jobs(self, tenant: str) -> TenantSteps:
        """Run the jobs of a tenant, one turn per product."""
        while job := await self.store.find_next_job(tenant, self.settled_ms):
            try:
                await self.run_turn(job)
            except StoreError:
                raise
            except Exception as error:
                log.exception("re-decode job of product %s failed", job.model)
                await self.store.end_job(
                    job, "FAILED", fault=f"{type(error).__name__}: {error}"[:500]
                )
            yield

    async def run_turn(self, job: RedecodeJob) -> None:
        """Continue a job for one turn."""
        cached = (await self.codecs.find_all([(job.tenant, job.model)]))[job.tenant, job.model]
        if cached.version != job.version:
            await self.store.end_job(job, "FAILED", fault=CODEC_CHANGED_FAULT)
            return
        until = time.monotonic() + TURN_SECONDS
        ids = await self._list_next_devices(job)
        for first in range(0, len(ids), CONCURRENT_READS):
            if not await self._redecode_devices(
                job, cached, ids[first : first + CONCURRENT_READS], until
            ):
                break
        if not ids:
            await self._finish_pass(job)

    async def _redecode_devices(
        self, job: RedecodeJob, cached: CachedCodec, ids: list[int], until: float
    ) -> bool:
        """Re-decode frames of devices; return False when the turn is over."""
        interrupted = {*job.in_progress, *job.interrupted}
        if not await self.store.record_started_devices(job, ids):
            return False
        things = await self._find_things(job, ids)
        batch = list(things.values())
        groups = (
            batch[first : first + DEVICES_PER_WRITE]
            for first in range(0, len(batch), DEVICES_PER_WRITE)
        )
        progress = ChainMap(
            *await asyncio.gather(
                *(self._redecode_group(job, cached, group, interrupted, until) for group in groups)
            )
        )
        finished = DeviceProgress(is_finished=True)
        progresses = [progress.get(device_id, finished) for device_id in ids]
        job.differences += [
            difference for outcome in progresses for difference in outcome.differences
        ]
        job.told += sum(outcome.republished for outcome in progresses)
        went = await self.store.save_progress(job, ids, progresses)
        if job.told >= MAX_REPUBLISHED:
            await self.store.end_job(job, "FAILED", fault=TOO_MANY_REPORTS_FAULT)
            return False
        return went and time.monotonic() <= until

    async def _find_things(self, job: RedecodeJob, ids: list[int]) -> dict[int, Thing]:
        """Return the devices that still have the product's model, by id."""
        devices = await self.devices.find_all(job.tenant, ids)
        batch = await self.things.build_things(
            [device for device in devices if device.model == job.model]
        )
        return {thing.id: thing for thing in batch}

    async def _list_next_devices(self, job: RedecodeJob) -> list[int]:
        if job.devices is not None:
            return [device_id for device_id in job.devices if device_id > job.last_device][
                :DEVICES_PER_LOOKUP
            ]
        return await self.devices.queries.list_ids_of_product(
            job.tenant, job.model, job.last_device, DEVICES_PER_LOOKUP
        )

    async def _finish_pass(self, job: RedecodeJob) -> None:
        if job.dry or job.is_second_pass:
            await self.store.end_job(job, "DONE")
        else:
            await self.store.start_second_pass(job)

    async def _redecode_group(
        self,
        job: RedecodeJob,
        cached: CachedCodec,
        things: Sequence[Thing],
        interrupted: set[int],
        until: float,
    ) -> dict[int, DeviceProgress]:
        """Re-decode frames of devices, then update what derives from history.

        Returns the progress by device.
        """
        progresses = await self.redecoder.redecode(job, cached, things, until)
        if not job.dry:
            await self._update_derived_values(
                {thing.id: thing for thing in things}, progresses, interrupted
            )
        return progresses

    async def _update_derived_values(
        self, things: dict[int, Thing], progresses: dict[int, DeviceProgress], interrupted: set[int]
    ) -> None:
        """Recalculate latest values and facts of devices from their history.

        Changes to `interrupted` devices are unknown, so all their values are recalculated.
        """
        for device_id in progresses.keys() & interrupted:
            entries = (await self.latest.find_entries([device_id])).get(device_id, {})
            known_times = {entry["t"] for entry in entries.values()}
            progresses[device_id].changed_times |= await self.redecoder.frames.filter_frame_times(
                device_id, known_times
            )
        times = {
            device_id: progress.changed_times
            for device_id, progress in progresses.items()
            if progress.changed_times or device_id in interrupted
        }
        if not times:
            return
        weeks = await self.partitions.collections()
        await self.latest.rebuild(
            {
                device_id: RewrittenHistory(
                    partial(self._iterate_history, things[device_id], weeks),
                    rewritten,
                    None if device_id in interrupted else progresses[device_id].changed_properties,
                )
                for device_id, rewritten in times.items()
            }
        )
        await self.device_fields.rewrite(
            {device_id: things[device_id] for device_id in times}, times
        )

    async def _iterate_history(
        self, thing: Thing, weeks: list[Collection], newest: int | None
    ) -> AsyncIterator[list[ReportTuple]]:
        """Yield lists of history records within ownership and retention, oldest first.

        With `newest`, yield one list of up to `newest` records: the newest, again oldest first.
        """
        first = max(thing.owned_since, now_ms() - self.redecoder.retention_ms)
        bounds = keys_between(thing.id, first)
        oldest = collection_name(partition_number(first))
        kept_weeks = [week for week in weeks if week.name >= oldest]
        if newest is not None:
            last: list[Document] = []
            for week in reversed(kept_weeks):
                rows = week.find({"_id": bounds}, sort=[("_id", -1)], limit=newest - len(last))
                last += await rows.to_list(None)
                if len(last) == newest:
                    break
            yield _to_reports(reversed(last))
            return
        for week in kept_weeks:
            rows = week.find({"_id": bounds}, sort=[("_id", 1)])
            while chunk := await rows.to_list(ROWS_PER_READ):
                yield _to_reports(chunk)


def _to_reports(rows: Iterable[Document]) -> list[ReportTuple]:
    """Return history records as reports."""
    keys = ((KEY_FORMAT.unpack(row["_id"]), row["p"]) for row in rows)
    return [(device, ts, properties) for (device, ts, _), properties in keys]
