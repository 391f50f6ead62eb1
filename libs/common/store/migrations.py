"""Versioned migrations: indexes and data, run at start, once across replicas.

A migration has a number and a function. The lease in `migrations` lets one replica run
them; the others wait. A migration must be safe to run again, because the process may
die between its last write and its being recorded.

While a new version is rolled out, processes of the old one go on beside it, and whoever rolls it
back starts them again. So what runs at start only *expands*: it adds what the new version needs
and takes nothing that the old one reads or writes. What takes something away, or completes what
old processes have written meanwhile, is a step that *contracts* (`contract=True`), and runs when
the operator says that the old version is gone (`thingway migrate --contract`; decision 0026).
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
_pause = asyncio.sleep

MIGRATIONS = "migrations"
RESTORING = "restoring"
"""Id of the document in `migrations` that marks a database while a backup is restored into it."""
_LOOK = 1.0
"""Seconds between two looks for the end of that."""
LIFE = 30.0
"""Seconds after which another process goes on with the migrations of one that died."""


@dataclass(frozen=True)
class Migration:
    """One step: what it does, and the function that does it."""

    number: int
    title: str
    run: Callable[[Database], Awaitable[None]]
    contract: bool = False
    """Whether processes of the version before it do not go on with it."""


async def migrate(
    database: Database, migrations: Sequence[Migration], *, contract: bool = False
) -> None:
    """Bring `database` to the newest version; return when it is, whoever did it.

    Steps that contract are left out unless they are asked for, or the database is a new one.
    """
    await _restored(database)
    lease = Lease(database, MIGRATIONS, life=LIFE)
    while await due(database, migrations, contract=contract):
        if await lease.acquire():
            break
        await asyncio.sleep(0.1)
    else:
        return
    renewal = asyncio.ensure_future(_renew(lease))
    try:
        for migration in await due(database, migrations, contract=contract):
            log.info("migration %d: %s", migration.number, migration.title)
            await migration.run(database)
            await database[MIGRATIONS].update_one(
                {"_id": migration.number},
                {"$set": {"title": migration.title, "at": datetime.now(UTC)}},
                upsert=True,
            )
    finally:
        renewal.cancel()
        await lease.release()


async def _restored(database: Database) -> None:
    """Wait while a backup is being restored: no service must sweep or serve half of it."""
    while await database[MIGRATIONS].find_one({"_id": RESTORING}) is not None:
        log.warning("%s is being restored, or was not to the end: waiting", database.name)
        await _pause(_LOOK)


async def due(
    database: Database, migrations: Sequence[Migration], *, contract: bool
) -> list[Migration]:
    """What has not run yet, in the order in which it is to; of a new database everything."""
    applied = {entry["_id"] async for entry in database[MIGRATIONS].find({}, {"_id": 1})}
    missing = [migration for migration in migrations if migration.number not in applied]
    if not contract and applied:
        missing = [migration for migration in missing if not migration.contract]
    return sorted(missing, key=lambda migration: migration.contract)


async def _renew(lease: Lease) -> None:
    """Keep the lease while a migration takes long (an index over much data)."""
    while True:
        await asyncio.sleep(LIFE / 4)
        with suppress(StoreError):
            await lease.acquire()
