"""Redecodings in MongoDB: `redecodes`, `{_id: {tenant, model}, devices?, start, end, after, second,
…}` with the fields of `Redecode`: the last one of each product.
"""

from typing import Any

import msgspec

from libs.common.clock import now_ms
from libs.common.store.mongo import Database, Document, DuplicateKey
from services.device.products.codec.store import identity_of
from services.device.reports.redecode.schemas import Difference, Redecode

REDECODES = "redecodes"


class Job(Redecode, kw_only=True):
    """A redecoding that is under way."""

    identity: dict[str, str] = msgspec.field(name="_id")
    devices: list[int] | None = None
    """None is all of the product."""
    start: int = 0
    end: int
    after: int = 0
    """The last device that is through."""
    second: bool = False
    """Whether all are gone through once more, for what came meanwhile."""

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.identity["tenant"]

    @property
    def model(self) -> str:
        """Of which product."""
        return self.identity["model"]


class RedecodeStore:
    """Reads and writes redecodings."""

    def __init__(self, database: Database) -> None:
        self._jobs = database[REDECODES]

    async def begin(self, job: Job) -> bool:
        """Write a new one in the place of the last; False while that is running."""
        query = {"_id": job.identity, "state": {"$ne": "RUNNING"}}
        document = msgspec.to_builtins(job)
        try:
            await self._jobs.replace_one(query, document, upsert=True)
        except DuplicateKey:
            return False
        return True

    async def find(self, tenant: str, model: str) -> Redecode | None:
        """The last one of a product."""
        found = await self._jobs.find_one({"_id": identity_of(tenant, model)})
        return msgspec.convert(found, Redecode) if found else None

    async def running(self) -> list[Job]:
        """Those under way, of all tenants, the oldest first."""
        found = self._jobs.find({"state": "RUNNING"}, sort=[("started", 1)])
        return msgspec.convert(await found.to_list(None), list[Job])

    async def stop(self, tenant: str, model: str) -> bool:
        """End the one of a product; False when none is running."""
        return await self._end({"_id": identity_of(tenant, model)}, "STOPPED")

    async def end(self, job: Job, state: str, **more: Any) -> None:
        """End one, unless it was stopped."""
        await self._end({"_id": job.identity, "started": job.started}, state, **more)

    async def _end(self, query: Document, state: str, **more: Any) -> bool:
        change = {"$set": {"state": state, "ended": now_ms(), **more}}
        ended = await self._jobs.update_one({**query, "state": "RUNNING"}, change)
        return bool(ended.modified_count)

    async def went(
        self, job: Job, device: int, read: int, changed: int, shown: list[Difference]
    ) -> bool:
        """Note that a device is through; False when it has been stopped."""
        query = {"_id": job.identity, "started": job.started, "state": "RUNNING"}
        counts = {"read": read, "changed": changed, "done": 0 if job.second else 1}
        differences = {"$each": msgspec.to_builtins(shown)}
        change = {
            "$set": {"after": device},
            "$inc": counts,
            "$push": {"differences": differences},
        }
        return bool((await self._jobs.update_one(query, change)).matched_count)

    async def again(self, job: Job) -> None:
        """Go through all devices once more."""
        change = {"$set": {"second": True, "after": 0}}
        await self._jobs.update_one({"_id": job.identity, "started": job.started}, change)
