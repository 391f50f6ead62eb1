"""Leases: one holder across replicas, until it stops renewing.

Time is the database's (`$$NOW`), so replicas need not agree on theirs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from uuid import uuid4

from pymongo import ReturnDocument

from libs.common.jobs import ended
from libs.common.store.mongo import Database, DuplicateKey, StoreError, present

log = logging.getLogger(__name__)


class Lease:
    """A named lease for this process."""

    def __init__(self, database: Database, name: str, life: float = 10.0) -> None:
        self._leases = database["leases"]
        self._name = name
        self._life_ms = int(life * 1000)
        self._holder = uuid4().hex

    async def acquire(self) -> bool:
        """Take or renew the lease; False while somebody else holds it."""
        free = {"$or": [{"$eq": ["$holder", self._holder]}, {"$lt": ["$until", "$$NOW"]}]}
        until = {"$dateAdd": {"startDate": "$$NOW", "unit": "millisecond", "amount": self._life_ms}}
        taken = {
            "holder": {"$cond": [free, self._holder, "$holder"]},
            "until": {"$cond": [free, until, "$until"]},
        }
        try:
            # $expr may not stand in the filter of an upsert, so the condition stands here; a
            # lease that nobody has ever held has no `until`, which sorts before every date.
            lease = await self._leases.find_one_and_update(
                {"_id": self._name},
                [{"$set": taken}],
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        except DuplicateKey:
            return False
        return bool(present(lease)["holder"] == self._holder)

    async def release(self) -> None:
        """Give the lease back, when it is ours."""
        await self._leases.delete_one({"_id": self._name, "holder": self._holder})


class Leader:
    """Runs a job in exactly one replica: the one that holds the lease.

    `job` is an endless coroutine; it is cancelled when the lease is lost, and when it could
    not be renewed well before its end, because by then somebody else may hold it.
    """

    def __init__(
        self, database: Database, name: str, job: Callable[[], Awaitable[None]], life: float = 10.0
    ) -> None:
        self._lease = Lease(database, name, life)
        self._name = name
        self._job = job
        self._period = life / 4

    async def run(self) -> None:
        """Compete for the lease for ever, and do the job while it is held."""
        task: asyncio.Task[None] | None = None
        try:
            while True:
                held = await self._held()
                if task is not None and (task.done() or not held):
                    await _end(task, self._name)
                    task = None
                if held and task is None:
                    task = asyncio.ensure_future(self._job())
                await asyncio.sleep(self._period)
        finally:
            if task is not None:
                await _end(task, self._name)
            await asyncio.shield(self._lease.release())

    async def _held(self) -> bool:
        try:
            async with asyncio.timeout(self._period):
                return await self._lease.acquire()
        except (StoreError, TimeoutError) as error:
            log.warning("lease %s: %r", self._name, error)
            return False


async def _end(task: "asyncio.Task[None]", name: str) -> None:
    await ended(task)
    if not task.cancelled() and task.exception() is not None:
        log.error("the job of lease %s failed and starts again", name, exc_info=task.exception())
