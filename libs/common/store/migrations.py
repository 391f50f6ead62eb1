"""Versioned migrations: indexes and data, run at start, once across replicas.

A migration has a number and a function. The lease in `migrations` lets one replica run
them; the others wait. A migration must be safe to run again, because the process may
die between its last write and its being recorded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from libs.common.store.lease import Lease
from libs.common.store.mongo import Database

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Migration:
    """One step: what it does, and the function that does it."""

    number: int
    title: str
    run: Callable[[Database], Awaitable[None]]


async def migrate(database: Database, migrations: Sequence[Migration]) -> None:
    """Bring `database` to the newest version; return when it is, whoever did it."""
    done = database["migrations"]
    lease = Lease(database, "migrations", life=30.0)
    while True:
        applied = {entry["_id"] async for entry in done.find({}, {"_id": 1})}
        missing = [migration for migration in migrations if migration.number not in applied]
        if not missing:
            return
        if await lease.acquire():
            break
        await asyncio.sleep(0.1)
    try:
        for migration in missing:
            log.info("migration %d: %s", migration.number, migration.title)
            await migration.run(database)
            await done.update_one(
                {"_id": migration.number},
                {"$set": {"title": migration.title, "at": datetime.now(UTC)}},
                upsert=True,
            )
            await lease.acquire()
    finally:
        await lease.release()
