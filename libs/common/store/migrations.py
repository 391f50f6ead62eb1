"""Versioned migrations of indexes and data, run once across replicas at start.

A migration has a number and a function. The lease `migrations` lets one replica run them; the
others wait. A migration must be repeatable, because the process may end between its last write and
the record of the migration.
During an update, processes of the old version continue to run, and a rollback starts them again. A
migration at start therefore only *expands*: it adds parts for the new version, and removes nothing
that the old version reads or writes. A step that removes something, or completes records that old
processes wrote meanwhile, *contracts* (`contract=True`). It runs when the operator confirms that no
old process remains (`thingway migrate --contract`; decision 0026).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from libs.common.store.lease import Lease
from libs.common.store.mongo import Database, StoreError
from libs.common.version import VERSION

log = logging.getLogger(__name__)
_pause = asyncio.sleep

MIGRATIONS = "migrations"
RESTORING = "restoring"
"""Id of the document in `migrations` that marks a database while a backup is restored."""
_LOOK = 1.0
"""Seconds between two checks for the end of the restoration."""
LIFE = 30.0
"""Seconds after which another process continues the migrations of a crashed one."""


@dataclass(frozen=True)
class Migration:
    """A step with its description and its function."""

    number: int
    title: str
    run: Callable[[Database], Awaitable[None]]
    contract: bool = False
    """Whether the step breaks processes of the previous version."""


class DatabaseTooNew(Exception):
    """A newer version contracted the database; the message says what to do."""


async def migrate(
    database: Database, migrations: Sequence[Migration], *, contract: bool = False
) -> None:
    """Migrate `database` to the newest version; return when this or another process has.

    Contracting steps are skipped unless they are requested, or the database is new. Raises
    `DatabaseTooNew` if a newer version has run such a step.
    """
    await _restored(database)
    await _require_known_contracts(database, migrations)
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
                {
                    "$set": {
                        "title": migration.title,
                        "at": datetime.now(UTC),
                        "contract": migration.contract,
                        "version": VERSION,
                    }
                },
                upsert=True,
            )
    finally:
        renewal.cancel()
        await lease.release()


async def _restored(database: Database) -> None:
    """Wait while a backup is restored: no service must process incomplete data."""
    while await database[MIGRATIONS].find_one({"_id": RESTORING}) is not None:
        log.warning(
            "%s is being restored, or its restoration was interrupted: waiting", database.name
        )
        await _pause(_LOOK)


async def _require_known_contracts(database: Database, migrations: Sequence[Migration]) -> None:
    known = {migration.number for migration in migrations}
    async for entry in database[MIGRATIONS].find({"contract": True}):
        if entry["_id"] not in known:
            raise DatabaseTooNew(
                f"version {VERSION} cannot use the database {database.name}, which version "
                f"{entry['version']} changed for good (migration {entry['_id']}: "
                f"{entry['title']}): start version {entry['version']} or a newer one, or restore "
                "a backup from before the change"
            )


async def due(
    database: Database, migrations: Sequence[Migration], *, contract: bool
) -> list[Migration]:
    """Return the pending migrations in order; for a new database, all."""
    applied = {entry["_id"] async for entry in database[MIGRATIONS].find({}, {"_id": 1})}
    missing = [migration for migration in migrations if migration.number not in applied]
    if not contract and applied:
        missing = [migration for migration in missing if not migration.contract]
    return sorted(missing, key=lambda migration: migration.contract)


async def _renew(lease: Lease) -> None:
    """Renew the lease during a long migration, such as a large index."""
    while True:
        await asyncio.sleep(LIFE / 4)
        with suppress(StoreError):
            await lease.acquire()
