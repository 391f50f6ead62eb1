"""Backup of MongoDB: every database at one cluster time, as raw BSON.

All reads use one snapshot session, so they see one majority-committed time. MongoDB keeps that time
for `minSnapshotHistoryWindowInSeconds` (300 by default, 0 where we start it).
`extend_snapshot_history` raises it while a backup runs.

Backups do not contain write-only values (access mode W, decision 0044), which documents of open
commands hold. A restored command without its values ends as FAILED (`values_not_restored`), so that
no device receives a mask instead of a key.
"""

import contextlib
import hashlib
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import OperationFailure

from deploy.backup.records import CollectionEnd, CollectionHead, Documents
from deploy.platform.errors import CommandError
from deploy.platform.mongo_server import Client
from libs.common.store.migrations import (
    MIGRATIONS_COLLECTION,
    RESTORING_ID,
    create_missing_collection,
)

COMMANDS, OUTBOX = "thingway_device.commands", "thingway_device.outbox"
OPENAPI_COMMANDS = "thingway_management.openapi_commands"
STREAM_TIMES_COLLECTION = ("thingway_device", "streams")
"""Database and collection with the creation time of each stream. Not backed up, because a restore
creates the streams again."""
COLLECTIONS_WITH_WRITE_ONLY = frozenset({COMMANDS, OUTBOX, OPENAPI_COMMANDS})


def remove_write_only_values(name: str, documents: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the documents of `{database}.{collection}` without write-only values.

    Omits the open commands in `OPENAPI_COMMANDS`, because `device` sends them again.
    """
    for raw in documents:
        cleaned = _without_write_only_values(name, raw)
        if cleaned is not None:
            yield cleaned


def _without_write_only_values(name: str, raw: bytes) -> bytes | None:
    if name == COMMANDS and b"sealed" in raw:
        return _command_without_values(raw)
    if name == OUTBOX and b"command-" in raw:
        return _outbox_without_values(raw)
    if name == OPENAPI_COMMANDS and not bson.decode(raw).get("told"):
        return None  # `device` sends open commands again
    return raw


def _command_without_values(raw: bytes) -> bytes:
    command: dict[str, Any] = bson.decode(raw)
    command.pop("sealed", None)
    for downlink in command.get("downlinks") or []:
        downlink["data"] = b""
    return bson.encode(command)


def _outbox_without_values(raw: bytes) -> bytes:
    """Return an outbox document; empty its write-only entries and withdraw them.

    Only versions before decision 0064 stored write-only values in the outbox.
    """
    document: dict[str, Any] = bson.decode(raw)
    for entry in document.get("entries", []):
        if entry.get("key"):
            entry |= {"payload": b"", "withdrawn": True}
    return bson.encode(document)


_HISTORY_PARAMETER = "minSnapshotHistoryWindowInSeconds"
_ADDED_HISTORY_SECONDS = 24 * 3600
"""Seconds that a backup adds to `_HISTORY_PARAMETER`: the longest duration of a backup."""
_BATCH_DOCUMENTS = 2000
"""Maximum documents per reply; MongoDB limits a reply to 16 MiB."""
_SNAPSHOT_ERROR_CODES = {239, 246}
"""MongoDB's error codes: the snapshot expired, or a collection was changed after it."""
_UNAUTHORIZED_CODE = 13
_BSON_SIZE_FORMAT = struct.Struct("<i")
_SERVER_SELECTION_MS = 10_000

CollectionOptions = dict[tuple[str, str], dict[str, Any]]
"""Options of each collection by database name and collection name."""


def connect(url: str) -> Client:
    """Return a MongoDB client, which connects with its first operation."""
    return AsyncMongoClient(
        url, serverSelectionTimeoutMS=_SERVER_SELECTION_MS, appname="thingway backup"
    )


class CollectionTally:
    """Number of documents of a collection, and a digest independent of their order."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, document: bytes) -> None:
        """Add a document to the count and the digest."""
        self.count += 1
        digest = hashlib.blake2b(document, digest_size=16).digest()
        self._sum = (self._sum + int.from_bytes(digest)) % 2**128

    @property
    def end_record(self) -> CollectionEnd:
        """Return the record with this count and digest, which ends the collection."""
        return CollectionEnd(self.count, self._sum.to_bytes(16))


def split_documents(data: bytes) -> Iterator[bytes]:
    """Yield the BSON documents that `data` contains one after another."""
    at = 0
    while at < len(data):
        size: int = _BSON_SIZE_FORMAT.unpack_from(data, at)[0]
        yield data[at : at + size]
        at += size


@contextlib.asynccontextmanager
async def extend_snapshot_history(
    client: Client, log: Callable[[str], None]
) -> AsyncIterator[None]:
    """Make MongoDB keep old versions of documents for a backup inside the block.

    Adds to the current setting and subtracts at the end, because several backups may run at once.
    If the MongoDB user may not change the setting, only prints a warning with `log`.
    """

    async def add_seconds(seconds: int) -> None:
        now = (await client.admin.command({"getParameter": 1, _HISTORY_PARAMETER: 1}))[
            _HISTORY_PARAMETER
        ]
        await client.admin.command({"setParameter": 1, _HISTORY_PARAMETER: max(0, now + seconds)})

    try:
        await add_seconds(_ADDED_HISTORY_SECONDS)
    except OperationFailure as error:
        if error.code != _UNAUTHORIZED_CODE:
            raise
        log(
            f"this MongoDB user may not set {_HISTORY_PARAMETER}: "
            "the backup must finish within that time"
        )
        yield
        return
    try:
        yield
    finally:
        await add_seconds(-_ADDED_HISTORY_SECONDS)


class MongoSnapshot:
    """All databases at one cluster time."""

    def __init__(
        self, client: Client, databases: Sequence[str], session: AsyncClientSession
    ) -> None:
        self._client = client
        self._databases = databases
        self._session = session
        self.collections: CollectionOptions = {}
        self.time = (0, 0)
        """MongoDB cluster time: epoch seconds, and the ordinal within the second."""

    @classmethod
    @contextlib.asynccontextmanager
    async def start(
        cls, client: Client, databases: Sequence[str]
    ) -> AsyncIterator["MongoSnapshot"]:
        """Yield a snapshot of the databases.

        Its time is chosen between two equal listings of the collections, so that none is missing.
        """
        while True:
            async with client.start_session(snapshot=True) as session:
                snapshot = cls(client, databases, session)
                snapshot.collections = await read_collection_options(client, databases)
                await client[databases[0]][MIGRATIONS_COLLECTION].find_one({}, session=session)
                if snapshot.collections != await read_collection_options(client, databases):
                    continue
                time: Any = session._snapshot_time  # noqa: SLF001 - there is no other way to read it
                snapshot.time = (time.time, time.inc)
                yield snapshot
                return

    async def read_batches(
        self, database: str, name: str, query: dict[str, Any] | None = None
    ) -> AsyncIterator[bytes]:
        """Yield a collection's documents without write-only values: concatenated BSON."""
        try:
            cursor: AsyncIterator[Any] = self._client[database][name].find_raw_batches(
                query or {}, session=self._session, batch_size=_BATCH_DOCUMENTS
            )
            full_name = f"{database}.{name}"
            async for batch in cursor:
                if full_name in COLLECTIONS_WITH_WRITE_ONLY:
                    kept = remove_write_only_values(full_name, split_documents(batch))
                    batch = b"".join(kept)  # noqa: PLW2901
                if batch:
                    yield batch
        except OperationFailure as error:
            if error.code not in _SNAPSHOT_ERROR_CODES:
                raise
            raise CommandError(
                f"MongoDB no longer keeps {database}.{name} at the moment of the backup "
                f"({_HISTORY_PARAMETER} is too short, or the collection was changed): "
                "start the backup again"
            ) from error

    async def read_collection(
        self, database: str, name: str
    ) -> AsyncIterator[CollectionHead | Documents | CollectionEnd]:
        """Yield the archive records of a whole collection."""
        options = self.collections[database, name]
        listed = await self._client[database][name].list_indexes()
        indexes = [dict(index) async for index in listed]
        kept_indexes = [
            index for index in indexes if index["name"] != "_id_" and not index.get("clustered")
        ]
        yield CollectionHead(
            database, name, bson.encode(options), bson.encode({"indexes": kept_indexes})
        )
        tally = CollectionTally()
        async for batch in self.read_batches(database, name):
            for document in split_documents(batch):
                tally.add(document)
            yield Documents(batch)
        yield tally.end_record


async def find_commands_with_write_only(client: Client) -> dict[str, set[int]]:
    """Return ids by SN of the commands whose MQTT messages have write-only values."""
    database, _, name = COMMANDS.partition(".")
    is_open = {"status": {"$in": ["PENDING", "SENT"]}, "writeOnly.0": {"$exists": True}}
    query = {"$or": [is_open, {"wipeAt": {"$exists": True}}]}
    ids_by_sn: dict[str, set[int]] = defaultdict(set)
    async for command in client[database][name].find(query, {"sn": 1}):
        ids_by_sn[command["sn"]].add(command["_id"])
    return ids_by_sn


async def read_collection_options(client: Client, databases: Sequence[str]) -> CollectionOptions:
    """Return the options of each collection to back up in these databases."""
    collections: CollectionOptions = {}
    for database in databases:
        async for listed in await client[database].list_collections():
            if (database, listed["name"]) == STREAM_TIMES_COLLECTION:
                continue
            if listed["type"] == "collection" and not listed["name"].startswith("system."):
                collections[database, listed["name"]] = dict(listed["options"])
    return collections


class DatabaseRestore:
    """A database that a restore fills; a mark makes services wait meanwhile."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name
        self._database = client[name]
        self._indexes: dict[str, list[dict[str, Any]]] = {}

    async def require_empty(self) -> None:
        """Raise `CommandError` unless the database is empty."""
        for database, name in await read_collection_options(self._client, [self.name]):
            if await self._client[database][name].find_one({}, {"_id": 1}) is not None:
                raise CommandError(
                    f"{database}.{name} is not empty: restore a backup into empty stores only"
                )

    async def mark_incomplete(self) -> None:
        """Mark the database as incomplete; services wait until `remove_mark`."""
        await self._database[MIGRATIONS_COLLECTION].insert_one({"_id": RESTORING_ID})

    async def remove_mark(self) -> None:
        """Remove the mark of `mark_incomplete`, so that services start."""
        await self._database[MIGRATIONS_COLLECTION].delete_one({"_id": RESTORING_ID})

    async def create_collection(self, head: CollectionHead) -> None:
        """Create a collection; `create_indexes` adds its indexes after all documents."""
        options = bson.decode(head.options)
        await create_missing_collection(self._database, head.name, **options)
        self._indexes[head.name] = bson.decode(head.indexes)["indexes"]

    async def insert_documents(self, name: str, documents: Sequence[bytes]) -> None:
        """Insert BSON documents into the collection `name`."""
        raw = [RawBSONDocument(document) for document in documents]
        await self.get_collection(name).insert_many(raw, ordered=False)

    def get_collection(self, name: str) -> AsyncCollection[Any]:
        """Return a collection with majority write concern."""
        return self._database.get_collection(name, write_concern=WriteConcern("majority", j=True))

    async def tally_collection(self, name: str) -> CollectionTally:
        """Return count and digest of a collection's documents, without the restore's mark."""
        tally = CollectionTally()
        query = {"_id": {"$ne": RESTORING_ID}} if name == MIGRATIONS_COLLECTION else {}
        cursor: AsyncIterator[Any] = self._database[name].find_raw_batches(
            query, batch_size=_BATCH_DOCUMENTS
        )
        async for batch in cursor:
            for document in split_documents(batch):
                tally.add(document)
        return tally

    async def create_indexes(self) -> None:
        """Create the indexes of the archive, including those that expire documents."""
        for name, indexes in self._indexes.items():
            if indexes:
                await self._database.command(
                    "createIndexes",
                    name,
                    indexes=[
                        {key: index[key] for key in index if key != "ns"} for index in indexes
                    ],
                )
