"""Versioned migrations: indexes and data, run at start, once across replicas.

A migration has a number and a function. The lease in `migrations` lets one replica run
them; the others wait. A migration must be safe to run again, because the process may
die between its last write and its being recorded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from libs.common.store.lease import Lease
from libs.common.store.mongo import Database, StoreError

log = logging.getLogger(__name__)

LIFE = 30.0
"""Seconds after which another process goes on with the migrations of one that died."""


@dataclass(frozen=True)
class Migration:
    """One step: what it does, and the function that does it."""

    number: int
    title: str
    run: Callable[[Database], Awaitable[None]]


async def migrate(database: Database, migrations: Sequence[Migration]) -> None:
    """Bring `database` to the newest version; return when it is, whoever did it."""
    lease = Lease(database, "migrations", life=LIFE)
    while await due(database, migrations):
        if await lease.acquire():
            break
        await asyncio.sleep(0.1)
    else:
        return
    renewal = asyncio.ensure_future(_renew(lease))
    try:
        for migration in await due(database, migrations):
            log.info("migration %d: %s", migration.number, migration.title)
            await migration.run(database)
            await database["migrations"].update_one(
                {"_id": migration.number},
                {"$set": {"title": migration.title, "at": datetime.now(UTC)}},
                upsert=True,
            )
    finally:
        renewal.cancel()
        await lease.release()


async def due(database: Database, migrations: Sequence[Migration]) -> list[Migration]:
    """What has not run yet."""
    applied = {entry["_id"] async for entry in database["migrations"].find({}, {"_id": 1})}
    return [migration for migration in migrations if migration.number not in applied]


async def _renew(lease: Lease) -> None:
    """Keep the lease while a migration takes long (an index over much data)."""
    while True:
        await asyncio.sleep(LIFE / 4)
        with suppress(StoreError):
            await lease.acquire()
