"""Backup of one tenant, which `tenant_restore` restores into another installation.

`TENANT_COLLECTIONS` lists the tenant's documents. Streams do not move: consumers have received
their events at the source.
"""

import itertools
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import bson
import msgspec

from deploy.backup import databases, relocation
from deploy.backup.archive import Log, WriteRecord
from deploy.backup.databases import CollectionTally, MongoSnapshot, split_documents
from deploy.backup.records import (
    ArchiveEnd,
    ArchiveHead,
    ArchiveRecord,
    BackupMoment,
    CollectionHead,
    Documents,
    NextIds,
    Secrets,
)
from deploy.backup.relocation import Document, Relocation
from deploy.backup.stores import DATABASES, Stores
from deploy.backup.tenant_collections import TENANT_COLLECTIONS, Lookup, TenantCollection
from deploy.platform import keys
from deploy.platform.errors import CommandError
from deploy.platform.state import State
from libs.common.clock import now_ms
from libs.common.identity.seal import Seal
from libs.common.version import VERSION
from services.device.telemetry.partitions import KEY_FORMAT

_DATABASE_PREFIX = "thingway_"
_IDS_PER_QUERY = 1000
"""Maximum ids per query."""
T = TypeVar("T")


def split_collection_name(name: str) -> tuple[str, str]:
    """Return the database name and the collection name of `{service}.{collection}`."""
    service, _, collection = name.partition(".")
    return f"{_DATABASE_PREFIX}{service}", collection


def join_collection_name(database: str, collection: str) -> str:
    """Return `{service}.{collection}`."""
    return f"{database.removeprefix(_DATABASE_PREFIX)}.{collection}"


def integration_and_flow_seals(state: State) -> tuple[Seal, Seal]:
    """Return the seal of integration secrets and that of flow secrets."""
    return Seal(state.secrets["secrets_key"]), Seal(state.secrets["flow_secrets_key"])


async def back_up_tenant(stores: Stores, tenant: str, write: WriteRecord, log: Log) -> BackupMoment:
    """Write the records of one tenant at one time; raise `CommandError` on failure."""
    key = keys.new_private_key()
    await write(ArchiveHead(VERSION, now_ms(), tenant))
    await write(Secrets(msgspec.json.encode({"key": key})))
    async with (
        stores.connect_mongo_reader() as client,
        databases.extend_snapshot_history(client, log),
        MongoSnapshot.start(client, DATABASES) as snapshot,
    ):
        moment = BackupMoment(now_ms(), snapshot.time, {})
        await write(moment)
        ends = {
            join_collection_name(database, counter["_id"]): int(counter["next"])
            for database in DATABASES
            async for counter in _read_decoded(snapshot, database, "counters")
        }
        await write(NextIds(ends))
        reader = _TenantReader(snapshot, tenant, Seal(key), stores.state)
        await reader.collect_ids()
        written = 0
        for row, database, collection in reader.list_collections():
            async for record in reader.read(row, database, collection):
                await write(record)
            log(f"{database}.{collection}")
            written += 1
    await write(ArchiveEnd(written))
    return moment


async def _read_decoded(
    snapshot: MongoSnapshot, database: str, name: str, query: dict[str, Any] | None = None
) -> AsyncIterator[Document]:
    async for batch in snapshot.read_batches(database, name, query):
        for document in split_documents(batch):
            yield bson.decode(document)


class _TenantReader:
    """Reader of one tenant's documents from a snapshot."""

    def __init__(self, snapshot: MongoSnapshot, tenant: str, seal: Seal, state: State) -> None:
        self._snapshot = snapshot
        self._tenant = tenant
        accounts, flows = integration_and_flow_seals(state)
        self._move = Relocation({}, {}, tenant, (accounts, seal), (flows, seal))
        self._things: list[int] = []
        self._serials: list[str] = []
        self._shapes: set[str] = set()

    async def collect_ids(self) -> None:
        """Read the tenant's SNs, shapes, and ids of devices and custom entities.

        Raises `CommandError` if the tenant does not exist.
        """
        database, tenants = split_collection_name("auth.tenants")
        query = {"_id": self._tenant}
        if not [tenant async for tenant in _read_decoded(self._snapshot, database, tenants, query)]:
            raise CommandError(f"the tenant {self._tenant} does not exist")
        tenant_query = {"tenant": self._tenant}
        database, devices = split_collection_name("device.devices")
        async for device in _read_decoded(self._snapshot, database, devices, tenant_query):
            self._things.append(device["_id"])
            self._serials.append(device["snKey"])
            self._shapes |= {device["shape"]} if device.get("shape") else set()
        async for thing in _read_decoded(self._snapshot, database, "things", tenant_query):
            self._things.append(thing["_id"])
        async for record in _read_decoded(self._snapshot, database, "rps", tenant_query):
            self._serials.append(record["_id"])
        self._things.sort()
        await self._add_parent_shapes(database)

    async def _add_parent_shapes(self, database: str) -> None:
        """Add the ancestors of the shapes that devices use."""
        new = set(self._shapes)
        while new:
            query = {"_id": {"$in": list(new)}}
            parents = {
                shape["parent"]
                async for shape in _read_decoded(self._snapshot, database, "shapes", query)
                if shape.get("parent")
            }
            new = parents - self._shapes
            self._shapes |= new

    def list_collections(self) -> Iterator[tuple[TenantCollection, str, str]]:
        """Yield the entry, database and name of each existing collection of tenants."""
        for row in TENANT_COLLECTIONS:
            for database, collection in sorted(self._snapshot.collections):
                if row.name_pattern.fullmatch(join_collection_name(database, collection)):
                    yield row, database, collection

    async def read(
        self, row: TenantCollection, database: str, name: str
    ) -> AsyncIterator[ArchiveRecord]:
        """Yield the archive records of the tenant's documents in a collection."""
        options = bson.encode(self._snapshot.collections[database, name])
        yield CollectionHead(database, name, options, bson.encode({"indexes": []}))
        tally = CollectionTally()
        for query in self._build_queries(row):
            async for batch in self._snapshot.read_batches(database, name, query):
                documents = [
                    self._seal_for_archive(row, document) for document in split_documents(batch)
                ]
                for document in documents:
                    tally.add(document)
                yield Documents(b"".join(documents))
        yield tally.end_record

    def _build_queries(self, row: TenantCollection) -> Iterable[dict[str, Any]]:
        match row.lookup:
            case Lookup.THING:
                return _queries_by_id(self._things)
            case Lookup.THING_PREFIX:
                return ({"_id": history_key_range(thing, thing + 1)} for thing in self._things)
            case Lookup.SERIAL:
                return _queries_by_id(self._serials)
            case Lookup.SHAPE:
                return _queries_by_id(sorted(self._shapes))
            case field:
                return [{field: self._tenant}]

    def _seal_for_archive(self, row: TenantCollection, raw: bytes) -> bytes:
        """Return a document with its secrets sealed for the archive."""
        if row.rewrite is relocation.rewrite_design:
            relocation.collect_seal_contexts(bson.decode(raw), self._move)
        elif row.rewrite in relocation.RESEALING_REWRITES:
            document = bson.decode(raw)
            row.rewrite(document, self._move)
            return bson.encode(document)
        return raw


def _queries_by_id(ids: Sequence[Any]) -> Iterator[dict[str, Any]]:
    return ({"_id": {"$in": batch}} for batch in split_into_batches(ids))


def split_into_batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in lists of at most `_IDS_PER_QUERY`."""
    following = iter(items)
    while batch := list(itertools.islice(following, _IDS_PER_QUERY)):
        yield batch


def history_key_range(first: int, end: int) -> dict[str, bytes]:
    """Return MongoDB's condition for history keys of things: `first` <= id < `end`."""
    return {"$gte": KEY_FORMAT.pack(first, 0, 0), "$lt": KEY_FORMAT.pack(end, 0, 0)}
