"""Leases: a single replica holds a lease until it stops renewing it.

Times come from the database (`$$NOW`), so the clocks of replicas need not agree.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from uuid import uuid4

from pymongo import ReturnDocument

from libs.common.jobs import cancel_and_wait, seconds_to_tick
from libs.common.store.mongo import Database, DuplicateKey, StoreError, require_document

log = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None]]
"""Returns the coroutine of an endless job."""


class Lease:
    """A named lease of this process."""

    def __init__(self, database: Database, name: str, life: float = 10.0) -> None:
        self._leases = database["leases"]
        self._name = name
        self._life_ms = int(life * 1000)
        self._holder = uuid4().hex

    async def acquire(self) -> bool:
        """Acquire or renew the lease; return False while another process holds it."""
        free = {"$or": [{"$eq": ["$holder", self._holder]}, {"$lt": ["$until", "$$NOW"]}]}
        until = {"$dateAdd": {"startDate": "$$NOW", "unit": "millisecond", "amount": self._life_ms}}
        renewal = {
            "holder": {"$cond": [free, self._holder, "$holder"]},
            "until": {"$cond": [free, until, "$until"]},
        }
        try:
            # $expr is not permitted in the filter of an upsert, so the update has the condition. A
            # new lease has no `until`, which sorts before every date.
            lease = await self._leases.find_one_and_update(
                {"_id": self._name},
                [{"$set": renewal}],
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        except DuplicateKey:
            return False
        return bool(require_document(lease)["holder"] == self._holder)

    async def release(self) -> None:
        """Release the lease, if this process holds it; after a failure, it expires."""
        try:
            await self._leases.delete_one({"_id": self._name, "holder": self._holder})
        except StoreError as error:
            log.warning("lease %s was not released and will expire: %r", self._name, error)


class Leader:
    """Runs the jobs of a process in exactly one replica, which holds the lease.

    All jobs share a lease, because each renewal is a write that waits for the journal. Jobs are
    cancelled when the lease is lost, or when it could not be renewed well before its end, because
    another replica may then acquire it. A failed job is restarted.
    """

    def __init__(
        self, database: Database, name: str, jobs: Mapping[str, Job], life: float = 10.0
    ) -> None:
        """`life` is the time in seconds after which another replica takes over."""
        self._lease = Lease(database, name, life)
        self._name = name
        self._jobs = jobs
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._period = life / 4
        """Seconds between attempts to acquire the lease, and their timeout."""
        self._renewal = life / 2
        """Seconds between renewals: a failed one ends the jobs after 0.8 of `life` at most."""

    async def run(self) -> None:
        """Compete for the lease for ever, and run the jobs while it is held."""
        try:
            while True:
                holds_lease = await self._try_acquire()
                await self._end(*(name for name, task in self._tasks.items() if task.done()))
                if holds_lease:
                    self._begin()
                else:
                    await self._end(*self._tasks)
                await asyncio.sleep(seconds_to_tick(self._renewal) if holds_lease else self._period)
        finally:
            await self._end(*self._tasks)
            await asyncio.shield(self._lease.release())

    async def _try_acquire(self) -> bool:
        try:
            async with asyncio.timeout(self._period):
                return await self._lease.acquire()
        except (StoreError, TimeoutError) as error:
            log.warning("lease %s: %r", self._name, error)
            return False

    def _begin(self) -> None:
        for name, job in self._jobs.items():
            if name not in self._tasks:
                self._tasks[name] = asyncio.ensure_future(job())

    async def _end(self, *names: str) -> None:
        tasks = {name: self._tasks[name] for name in names}
        await cancel_and_wait(*tasks.values())
        for name, task in tasks.items():
            del self._tasks[name]
            if not task.cancelled() and task.exception() is not None:
                log.error("the job %s failed and is restarted", name, exc_info=task.exception())
