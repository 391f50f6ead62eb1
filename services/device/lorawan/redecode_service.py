"""Re-decode jobs: operations on them, and collection `redecodes`.

`redecodes` holds the last job of each product: `{_id: {tenant, model}, …}` with the fields of
`RedecodeJob`, `at` (when it ended) and `turn` (when it last had a turn, ms).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from libs.common.bus import Wakeups
from libs.common.clock import from_ms, now_ms
from libs.common.errors import Conflict, InvalidInput, NotFound
from libs.common.identity import Principal
from libs.common.store.mongo import Database, Document, DuplicateKey
from services.device.lorawan.schemas import (
    MAX_DIFFERENCES,
    RedecodeDifference,
    RedecodeProgress,
    StartRedecode,
)
from services.device.telemetry.partitions import history_key
from services.device.things.device_queries import DeviceQueries
from services.device.things.directory import GrantedDevices
from services.device.things.errors import codec_not_found
from services.device.things.product_store import ProductStore, product_id

REDECODES_COLLECTION = "redecodes"
"""The collection, and a topic of `Wakeups`: a job has started."""
FINISHED_JOB_DAYS = 30
"""Days for which a finished job is kept."""


class RedecodeJob(RedecodeProgress, kw_only=True):
    """A re-decode job that is running."""

    identity: dict[str, str] = msgspec.field(name="_id")
    devices: list[int] | None = None
    """None means all devices of the product."""
    start: int = 0
    end: int
    last_device: int = msgspec.field(name="after", default=0)
    """Id of the last device that is finished."""
    in_progress: list[int] = msgspec.field(name="under", default_factory=list)
    """Devices with changed frames whose latest values may not be updated yet."""
    interrupted: list[int] = msgspec.field(name="lost", default_factory=list)
    """Devices that an earlier process left in progress, in this job or one before."""
    resume_keys: dict[str, bytes] = msgspec.field(name="rest", default_factory=dict)
    """Key of the last frame that was decoded, by device."""
    is_second_pass: bool = msgspec.field(name="second", default=False)
    """Whether this pass covers frames that arrived during the first one."""

    @property
    def tenant(self) -> str:
        """Return the tenant of the product."""
        return self.identity["tenant"]

    @property
    def model(self) -> str:
        """Return the model of the product."""
        return self.identity["model"]

    def resume_key(self, device: int) -> bytes:
        """Return the key of the frame after which decoding of a device continues."""
        return self.resume_keys.get(str(device)) or history_key(device, self.start, 0)


@dataclass
class DeviceProgress:
    """Progress of re-decoding the frames of a device."""

    read: int = 0
    changed: int = 0
    republished: int = 0
    differences: list[RedecodeDifference] = field(default_factory=list)
    changed_times: set[int] = field(default_factory=set)
    """Times of changed history records and of their frames, ms."""
    changed_properties: set[str] = field(default_factory=set)
    """Properties in the new values of changed history records."""
    last_key: bytes = b""
    """Key of the last frame that was read."""
    is_finished: bool = False


class RedecodeStore:
    """Reads and writes re-decode jobs."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._jobs = database[REDECODES_COLLECTION]
        self.wakeups = wakeups

    async def remove_differences(self, tenant: str, model: str, device_ids: Sequence[int]) -> None:
        """Remove the differences of devices from the last job of a product."""
        await self._jobs.update_one(
            {"_id": product_id(tenant, model)},
            {"$pull": {"differences": {"device": {"$in": list(device_ids)}}}},
        )

    async def begin(self, job: RedecodeJob) -> bool:
        """Replace the last job of a product; return False if that job still runs."""
        query = {"_id": job.identity, "state": {"$ne": "RUNNING"}}
        lost = {"$setUnion": [{"$ifNull": ["$lost", []]}, {"$ifNull": ["$under", []]}]}
        made = [{"$literal": msgspec.to_builtins(job)}, {"lost": lost}]
        try:
            await self._jobs.update_one(
                query, [{"$replaceWith": {"$mergeObjects": made}}], upsert=True
            )
        except DuplicateKey:
            return False
        self.wakeups.notify(REDECODES_COLLECTION)
        return True

    async def find(self, tenant: str, model: str) -> RedecodeProgress | None:
        """Return the last job of a product, or None."""
        document = await self._jobs.find_one({"_id": product_id(tenant, model)})
        return msgspec.convert(document, RedecodeProgress) if document else None

    async def list_due_tenants(self, settled_ms: int, within: float = 0) -> list[str]:
        """Return the tenants for which `find_next_job` returns a job within `within` seconds."""
        due = _due_query(settled_ms - int(within * 1000))
        return list(await self._jobs.distinct("_id.tenant", due))

    async def find_next_job(self, tenant: str, settled_ms: int) -> RedecodeJob | None:
        """Return the running job of a tenant that has waited longest for its turn.

        A second pass starts `settled_ms` after the first.
        """
        query = {"_id.tenant": tenant, **_due_query(settled_ms)}
        return msgspec.convert(
            await self._jobs.find_one(query, sort=[("turn", 1)]), RedecodeJob | None
        )

    async def stop(self, tenant: str, model: str) -> bool:
        """Stop the job of a product; return False when none is running."""
        return await self._end_running({"_id": product_id(tenant, model)}, "STOPPED")

    async def end_job(self, job: RedecodeJob, state: str, **more: Any) -> None:
        """Set `state` and the fields `more` of a job; do nothing if it has ended already."""
        await self._end_running({"_id": job.identity, "started": job.started}, state, **more)

    async def _end_running(self, query: Document, state: str, **more: Any) -> bool:
        now = now_ms()
        change = {"$set": {"state": state, "ended": now, "at": from_ms(now), **more}}
        ended = await self._jobs.update_one({**query, "state": "RUNNING"}, change)
        return bool(ended.modified_count)

    async def record_started_devices(self, job: RedecodeJob, devices: list[int]) -> bool:
        """Record the devices of a turn; return False when the job was stopped."""
        remaining = [device_id for device_id in job.in_progress if device_id not in devices]
        noted = {"under": devices, "turn": now_ms()}
        change = {"$set": noted, "$addToSet": {"lost": {"$each": remaining}}}
        return await self._update_running(job, change)

    async def save_progress(
        self, job: RedecodeJob, devices: list[int], progresses: list[DeviceProgress]
    ) -> bool:
        """Record the progress of devices; return False when the job was stopped."""
        job.in_progress = []
        through = all(progress.is_finished for progress in progresses)
        rest = (
            {}
            if through
            else {
                str(at): progress.last_key for at, progress in zip(devices, progresses, strict=True)
            }
        )
        differences = [difference for progress in progresses for difference in progress.differences]
        change = {
            "$set": {"rest": rest, "under": []} | ({"after": devices[-1]} if through else {}),
            "$pullAll": {"lost": [] if job.dry else devices},
            "$inc": {
                "read": sum(progress.read for progress in progresses),
                "changed": sum(progress.changed for progress in progresses),
                "told": sum(progress.republished for progress in progresses),
                "done": len(devices) if through and not job.is_second_pass else 0,
            },
            "$push": {
                "differences": {
                    "$each": msgspec.to_builtins(differences)[:MAX_DIFFERENCES],
                    "$slice": MAX_DIFFERENCES,
                }
            },
        }
        return await self._update_running(job, change)

    async def _update_running(self, job: RedecodeJob, change: Document) -> bool:
        query = {"_id": job.identity, "started": job.started, "state": "RUNNING"}
        return bool((await self._jobs.update_one(query, change)).matched_count)

    async def start_second_pass(self, job: RedecodeJob) -> None:
        """Start the second pass over all devices."""
        change = {"$set": {"second": True, "after": 0}}
        await self._jobs.update_one({"_id": job.identity, "started": job.started}, change)


def _due_query(settled_ms: int) -> Document:
    """Return the condition that a job runs and does not wait for its second pass."""
    settled = {"started": {"$lte": now_ms() - settled_ms}}
    return {"state": "RUNNING", "$or": [{"second": {"$ne": True}}, settled]}


class RedecodeService:
    """Operations on re-decode jobs, which a background worker runs."""

    def __init__(
        self,
        store: RedecodeStore,
        products: ProductStore,
        lists: DeviceQueries,
        granted: GrantedDevices,
    ) -> None:
        self._store = store
        self._products = products
        self._lists = lists
        self._granted = granted

    async def begin(
        self, principal: Principal, model: str, body: StartRedecode
    ) -> RedecodeProgress:
        """Start a job for a product.

        Raises `NotFound` for a product without a codec and `Conflict` while a job is running.
        """
        tenant = principal.tenant
        product = await self._products.get(tenant, model)
        if product.codec_version is msgspec.UNSET:
            raise codec_not_found(model)
        if body.start is not None and body.end is not None and body.start > body.end:
            raise InvalidInput("must not be before start", field="end")
        devices = sorted(set(body.devices)) or None
        now = now_ms()
        job = RedecodeJob(
            identity=dict(product_id(tenant, model)),
            state="RUNNING",
            dry=body.dry,
            tell=body.tell,
            version=product.codec_version,
            total=await self._count_devices(tenant, model) if devices is None else len(devices),
            started=now,
            devices=devices,
            start=body.start or 0,
            end=2**53 if body.end is None else body.end,
        )
        if not await self._store.begin(job):
            raise Conflict(f"frames of {model} are being decoded again", field="model")
        return await self.get(principal, model)

    async def get(self, principal: Principal, model: str) -> RedecodeProgress:
        """Return the last job of a product; raise `NotFound` when there is none."""
        job = await self.find_last(principal, model)
        if job is None:
            raise NotFound(f"frames of {model} were never decoded again", field="model")
        return job

    async def find_last(self, principal: Principal, model: str) -> RedecodeProgress | None:
        """Return the last job of a product, or None; raise `NotFound` for an unknown product.

        Differences of devices that the caller may not see are left out.
        """
        await self._products.get(principal.tenant, model)
        job = await self._store.find(principal.tenant, model)
        if job is not None and job.differences:
            ids = sorted({difference.device for difference in job.differences})
            visible = await self._granted.filter_visible(principal, ids)
            job.differences = [each for each in job.differences if each.device in visible]
        return job

    async def stop(self, principal: Principal, model: str) -> RedecodeProgress:
        """Stop the job of a product; finished devices keep their new history."""
        await self._store.stop(principal.tenant, model)
        return await self.get(principal, model)

    async def _count_devices(self, tenant: str, model: str) -> int:
        counted = await self._lists.count_member_sets_by_integration(tenant)
        return sum(count.devices for count in counted if count.member_set.model == model)
