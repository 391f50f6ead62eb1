"""Versioned migrations of indexes and data, run once across replicas at start.

A migration has a number and a function. The lease `migrations` lets one replica run them; the
others wait. A migration must be repeatable, because the process may end between its last write and
the record of the migration.
During an update, processes of the old version continue to run, and a rollback starts them again. A
migration at start therefore only *expands*: it adds parts for the new version, and removes nothing
that the old version reads or writes. A step that removes something, or completes records that old
processes wrote meanwhile, *contracts* (`contract=True`). It runs when the operator confirms that no
old process remains (`thingway migrate --contract`; decision 0026).

The functions after `migrate` create and drop collections and indexes, repeatably.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import CollectionInvalid, OperationFailure

from libs.common.store.lease import Lease
from libs.common.store.mongo import Collection, Database, Document, StoreError
from libs.common.version import VERSION

log = logging.getLogger(__name__)
_pause = asyncio.sleep
"""Pauses between two checks for the end of a restoration; a test replaces it."""

MIGRATIONS_COLLECTION = "migrations"
RESTORING_ID = "restoring"
"""Id of the document in `migrations` that marks a database while a backup is restored."""
_RESTORE_CHECK_SECONDS = 1.0
"""Seconds between two checks for the end of the restoration."""
LEASE_SECONDS = 30.0
"""Seconds after which another process continues the migrations of a crashed one."""

NAMESPACE_EXISTS_CODE = 48
"""MongoDB's error code for a collection that exists."""
INDEX_NOT_FOUND_CODE = 27
"""MongoDB's error code for a missing index."""
CLUSTERED_OPTIONS: dict[str, Any] = {
    "clusteredIndex": {"key": {"_id": 1}, "unique": True},
    "storageEngine": {"wiredTiger": {"configString": "memory_page_image_max=32KB"}},
}
"""Options of a collection that is sorted by `_id`. If ids begin with a device, as many leaves grow
concurrently as devices exist. By default, a leaf may use four times its size in the cache; here it
may use only its size (docs/decisions/0001)."""


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
    `DatabaseTooNew` if a newer version has run a contracting step.
    """
    await _wait_for_restore(database)
    await _require_known_contracts(database, migrations)
    lease = Lease(database, MIGRATIONS_COLLECTION, life=LEASE_SECONDS)
    while await list_pending_migrations(database, migrations, contract=contract):
        if await lease.acquire():
            break
        await asyncio.sleep(0.1)
    else:
        return
    renewal = asyncio.ensure_future(_renew(lease))
    try:
        for migration in await list_pending_migrations(database, migrations, contract=contract):
            log.info("migration %d: %s", migration.number, migration.title)
            await migration.run(database)
            await database[MIGRATIONS_COLLECTION].update_one(
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


async def _wait_for_restore(database: Database) -> None:
    """Wait while a backup is restored: no service must process incomplete data."""
    while await database[MIGRATIONS_COLLECTION].find_one({"_id": RESTORING_ID}) is not None:
        log.warning(
            "%s is being restored, or its restoration was interrupted: waiting", database.name
        )
        await _pause(_RESTORE_CHECK_SECONDS)


async def _require_known_contracts(database: Database, migrations: Sequence[Migration]) -> None:
    known_numbers = {migration.number for migration in migrations}
    async for entry in database[MIGRATIONS_COLLECTION].find({"contract": True}):
        if entry["_id"] not in known_numbers:
            raise DatabaseTooNew(
                f"version {VERSION} cannot use the database {database.name}, which version "
                f"{entry['version']} changed for good (migration {entry['_id']}: "
                f"{entry['title']}): start version {entry['version']} or a newer one, or restore "
                "a backup from before the change"
            )


async def list_pending_migrations(
    database: Database, migrations: Sequence[Migration], *, contract: bool
) -> list[Migration]:
    """Return the pending migrations, contracting ones last.

    Without `contract`, contracting ones are omitted unless the database is new.
    """
    applied = {entry["_id"] async for entry in database[MIGRATIONS_COLLECTION].find({}, {"_id": 1})}
    missing = [migration for migration in migrations if migration.number not in applied]
    if not contract and applied:
        missing = [migration for migration in missing if not migration.contract]
    return sorted(missing, key=lambda migration: migration.contract)


async def _renew(lease: Lease) -> None:
    """Renew the lease during a long migration, such as a large index."""
    while True:
        await asyncio.sleep(LEASE_SECONDS / 4)
        with suppress(StoreError):
            await lease.acquire()


async def create_missing_collection(database: Database, name: str, **options: Any) -> None:
    """Create a collection if missing, even if another process does the same."""
    try:
        await database.create_collection(name, **options)
    except CollectionInvalid:
        return
    except OperationFailure as error:
        if error.code != NAMESPACE_EXISTS_CODE:
            raise


def build_index_model(*fields: str, where: Document | None = None, **options: Any) -> IndexModel:
    """Return an index on documents that match `where`; a field such as `-at` is descending."""
    if where is not None:
        options["partialFilterExpression"] = where
    keys = [(field.lstrip("-"), DESCENDING if field[0] == "-" else ASCENDING) for field in fields]
    return IndexModel(keys, **options)


async def create_collections(
    database: Database, collections: Mapping[str, Sequence[IndexModel]]
) -> None:
    """Create the collections and indexes that are missing."""
    for name, indexes in collections.items():
        await create_missing_collection(database, name)
        if indexes:
            await database[name].create_indexes(indexes)


async def shard_empty_collection(
    database: Database, name: str, find_cuts: Callable[[], Awaitable[Sequence[bytes]]]
) -> None:
    """Distribute an empty collection by ranges of `_id`, if the server is a `mongos`.

    The ranges contain equally many of the ids that `find_cuts` returns in order. If the cluster
    rejects a command, for example because another process moves the same collection, the error is
    logged: MongoDB's balancer then distributes the collection as it grows.
    """
    admin, namespace = database.client.admin, f"{database.name}.{name}"
    if (await admin.command("hello")).get("msg") != "isdbgrid":
        return
    if await database[name].find_one({}, {"_id": 1}) is not None:
        return
    try:
        await admin.command("shardCollection", namespace, key={"_id": 1})
        shards = [shard["_id"] for shard in (await admin.command("listShards"))["shards"]]
        if not (cuts := await find_cuts()):
            return
        firsts = [cuts[len(cuts) * n // len(shards)] for n in range(1, len(shards))]
        bounds = [MinKey(), *firsts, MaxKey()]
        for shard, low, high in zip(shards, bounds, bounds[1:], strict=False):
            if low != high:
                await admin.command(
                    "moveRange", namespace, toShard=shard, min={"_id": low}, max={"_id": high}
                )
    except OperationFailure as error:
        log.warning("%s is not distributed over the shards: %s", namespace, error)


async def drop_index_if_present(collection: Collection, index: str) -> None:
    """Drop an index if it exists, even if another process does the same."""
    try:
        await collection.drop_index(index)
    except OperationFailure as error:
        if error.code != INDEX_NOT_FOUND_CODE:
            raise


RETENTION_INDEX_NAME = "retention"
DAY_SECONDS = 86_400
MAX_RETENTION_DAYS = 24_855
"""Maximum days in MongoDB's 32 bits of seconds."""


async def set_retention_days(database: Database, collection: str, field: str, days: int) -> None:
    """Keep documents for `days` after the time in `field`; 0 keeps them for ever.

    Expired documents are deleted within minutes; documents without the field are kept. Every
    replica calls this at its start with the same result.
    """
    indexes = await database[collection].index_information()
    retention_index = indexes.get(RETENTION_INDEX_NAME)
    if days == 0:
        await drop_index_if_present(database[collection], RETENTION_INDEX_NAME)
    elif retention_index is None:
        await database[collection].create_index(
            field, name=RETENTION_INDEX_NAME, expireAfterSeconds=days * DAY_SECONDS
        )
    elif retention_index["expireAfterSeconds"] != days * DAY_SECONDS:
        index = {"name": RETENTION_INDEX_NAME, "expireAfterSeconds": days * DAY_SECONDS}
        await database.command("collMod", collection, index=index)
    log.info("%s are kept %s", collection, f"{days} days" if days else "for ever")
