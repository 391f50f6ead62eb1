"""MongoDB in a backup: every database as it was at one cluster time, as raw BSON.

All reads are of one snapshot session, so that they see one majority-committed time. MongoDB
keeps that time for `minSnapshotHistoryWindowInSeconds` (300 by default, 0 where we start it);
`long_window` makes it long while a backup runs.

Write-only values (access mode W) stay out of backups (decision 0044).

They are in documents of commands that are still open. A restored command without them ends as
FAILED (`values_not_restored`), so that no device is sent a mask in place of a key.
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
from libs.common.store.migrations import MIGRATIONS, RESTORING
from libs.common.store.mongo import create_missing

COMMANDS, OUTBOX = "thingway_device.commands", "thingway_device.outbox"
CARRIED = "thingway_management.openapi_commands"
CONCEALED = frozenset({COMMANDS, OUTBOX, CARRIED})


def conceal(name: str, documents: Iterable[bytes]) -> Iterator[bytes]:
    """Give the documents of a collection (`{database}.{collection}`) without write-only values."""
    for raw in documents:
        concealed = _concealed(name, raw)
        if concealed is not None:
            yield concealed


def _concealed(name: str, raw: bytes) -> bytes | None:
    if name == COMMANDS and b"sealed" in raw:
        return _command(raw)
    if name == OUTBOX and b"command-" in raw:
        return _outbox(raw)
    if name == CARRIED and not bson.decode(raw).get("told"):
        return None  # `device` sends unanswered commands again
    return raw


def _command(raw: bytes) -> bytes:
    command: dict[str, Any] = bson.decode(raw)
    command.pop("sealed", None)
    for downlink in command.get("downlinks") or []:
        downlink["data"] = b""
    return bson.encode(command)


def _outbox(raw: bytes) -> bytes:
    document: dict[str, Any] = bson.decode(raw)
    for entry in document.get("entries", []):
        if entry.get("key"):
            entry |= {"payload": b"", "withdrawn": True}
    return bson.encode(document)


_WINDOW = "minSnapshotHistoryWindowInSeconds"
_WINDOW_SECONDS = 24 * 3600
"""The longest that a backup may take."""
_BATCH = 2000
"""Documents of one answer; it has at most 16 MiB."""
_TOO_OLD = {239, 246}
"""MongoDB's codes of a snapshot that is no longer there, and of a collection changed since it."""
_UNAUTHORIZED = 13
_SIZE = struct.Struct("<i")
_SELECTION_MS = 10_000

Collections = dict[tuple[str, str], dict[str, Any]]
"""What there is: options by database and name."""


def connect(url: str) -> Client:
    """A client; it connects with the first operation."""
    return AsyncMongoClient(url, serverSelectionTimeoutMS=_SELECTION_MS, appname="thingway backup")


class Tally:
    """The number of documents, and a sum over them that does not depend on their order."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, document: bytes) -> None:
        """Count a document."""
        self.count += 1
        digest = hashlib.blake2b(document, digest_size=16).digest()
        self._sum = (self._sum + int.from_bytes(digest)) % 2**128

    @property
    def digest(self) -> bytes:
        """The sum, 16 bytes."""
        return self._sum.to_bytes(16)

    @property
    def end(self) -> CollectionEnd:
        """What is written behind a collection."""
        return CollectionEnd(self.count, self.digest)


def split(data: bytes) -> Iterator[bytes]:
    """The documents that stand one after another in `data`."""
    at = 0
    while at < len(data):
        size: int = _SIZE.unpack_from(data, at)[0]
        yield data[at : at + size]
        at += size


@contextlib.asynccontextmanager
async def long_window(client: Client, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Let MongoDB keep what a snapshot reads for as long as a backup may take.

    Each adds that, and takes it off again: others may run at the same time.
    """

    async def change(seconds: int) -> None:
        now = (await client.admin.command({"getParameter": 1, _WINDOW: 1}))[_WINDOW]
        await client.admin.command({"setParameter": 1, _WINDOW: max(0, now + seconds)})

    try:
        await change(_WINDOW_SECONDS)
    except OperationFailure as error:
        if error.code != _UNAUTHORIZED:
            raise
        say(f"MongoDB does not let this user set {_WINDOW}: the backup must be done within it")
        yield
        return
    try:
        yield
    finally:
        await change(-_WINDOW_SECONDS)


class Snapshot:
    """All databases at one time."""

    def __init__(
        self, client: Client, databases: Sequence[str], session: AsyncClientSession
    ) -> None:
        self._client = client
        self._databases = databases
        self._session = session
        self.collections: Collections = {}
        self.time = (0, 0)
        """Seconds and ordinal."""

    @classmethod
    @contextlib.asynccontextmanager
    async def begin(cls, client: Client, databases: Sequence[str]) -> AsyncIterator["Snapshot"]:
        """Choose the time: between two looks that find the same collections."""
        while True:
            async with client.start_session(snapshot=True) as session:
                snapshot = cls(client, databases, session)
                snapshot.collections = await collections_of(client, databases)
                await client[databases[0]][MIGRATIONS].find_one({}, session=session)
                if snapshot.collections != await collections_of(client, databases):
                    continue
                time: Any = session._snapshot_time  # noqa: SLF001 - there is no other way to read it
                snapshot.time = (time.time, time.inc)
                yield snapshot
                return

    async def batches(
        self, database: str, name: str, query: dict[str, Any] | None = None
    ) -> AsyncIterator[bytes]:
        """The documents of a collection, some at a time, without write-only values."""
        try:
            cursor: AsyncIterator[Any] = self._client[database][name].find_raw_batches(
                query or {}, session=self._session, batch_size=_BATCH
            )
            async for batch in cursor:
                if f"{database}.{name}" in CONCEALED:
                    batch = b"".join(conceal(f"{database}.{name}", split(batch)))  # noqa: PLW2901
                if batch:
                    yield batch
        except OperationFailure as error:
            if error.code not in _TOO_OLD:
                raise
            raise CommandError(
                f"MongoDB no longer has {database}.{name} as it was at the moment of the backup "
                f"({_WINDOW} is too short, or the collection was changed): begin again"
            ) from error

    async def read(
        self, database: str, name: str
    ) -> AsyncIterator[CollectionHead | Documents | CollectionEnd]:
        """The records of a whole collection."""
        options = self.collections[database, name]
        listed = await self._client[database][name].list_indexes()
        indexes = [dict(index) async for index in listed]
        made = [one for one in indexes if one["name"] != "_id_" and not one.get("clustered")]
        yield CollectionHead(database, name, bson.encode(options), bson.encode({"indexes": made}))
        tally = Tally()
        async for batch in self.batches(database, name):
            for document in split(batch):
                tally.add(document)
            yield Documents(batch)
        yield tally.end


async def commands_with_secrets(client: Client) -> dict[str, set[int]]:
    """Return commands whose stored messages have write-only values: ids by serial number."""
    database, _, name = COMMANDS.partition(".")
    is_open = {"status": {"$in": ["PENDING", "SENT"]}, "writeOnly.0": {"$exists": True}}
    query = {"$or": [is_open, {"wipeAt": {"$exists": True}}]}
    found: dict[str, set[int]] = defaultdict(set)
    async for command in client[database][name].find(query, {"sn": 1}):
        found[command["sn"]].add(command["_id"])
    return found


async def collections_of(client: Client, databases: Sequence[str]) -> Collections:
    """Every collection of ours with its options."""
    found: Collections = {}
    for database in databases:
        async for one in await client[database].list_collections():
            if one["type"] == "collection" and not one["name"].startswith("system."):
                found[database, one["name"]] = dict(one["options"])
    return found


class Restored:
    """One database that is filled from an archive, and marked until all of them are."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name
        self._database = client[name]
        self._indexes: dict[str, list[dict[str, Any]]] = {}

    async def require_empty(self) -> None:
        """Raise `CommandError` unless there is nothing in it."""
        for database, name in await collections_of(self._client, [self.name]):
            if await self._client[database][name].find_one({}, {"_id": 1}) is not None:
                raise CommandError(
                    f"{database}.{name} is not empty: a backup is restored into empty stores only"
                )

    async def mark(self) -> None:
        """Let services wait: what they find is not whole."""
        await self._database[MIGRATIONS].insert_one({"_id": RESTORING})

    async def unmark(self) -> None:
        """All databases are whole."""
        await self._database[MIGRATIONS].delete_one({"_id": RESTORING})

    async def create(self, head: CollectionHead) -> None:
        """Make a collection; its indexes follow when all documents are there."""
        options = bson.decode(head.options)
        await create_missing(self._database, head.name, **options)
        self._indexes[head.name] = bson.decode(head.indexes)["indexes"]

    async def insert(self, name: str, documents: Sequence[bytes]) -> None:
        """Add documents as they are."""
        raw = [RawBSONDocument(document) for document in documents]
        await self.collection(name).insert_many(raw, ordered=False)

    def collection(self, name: str) -> AsyncCollection[Any]:
        """A collection that answers with raw documents."""
        return self._database.get_collection(name, write_concern=WriteConcern("majority", j=True))

    async def tally(self, name: str) -> Tally:
        """What there is in a collection, apart from the mark."""
        found = Tally()
        query = {"_id": {"$ne": RESTORING}} if name == MIGRATIONS else {}
        cursor: AsyncIterator[Any] = self._database[name].find_raw_batches(query, batch_size=_BATCH)
        async for batch in cursor:
            for document in split(batch):
                found.add(document)
        return found

    async def make_indexes(self) -> None:
        """Make what the source had; documents that are too old may go from now on."""
        for name, indexes in self._indexes.items():
            if indexes:
                await self._database.command(
                    "createIndexes",
                    name,
                    indexes=[{key: one[key] for key in one if key != "ns"} for one in indexes],
                )
