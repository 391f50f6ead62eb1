"""Backup of one tenant, and its restore into another installation.

`TENANT_COLLECTIONS` lists the tenant's documents. The restore shifts ids and seals secrets again
(`relocation`). Hashes of passwords and keys do not change, so logins keep working. Streams do not
move: consumers have received their events at the source.
"""

import itertools
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import bson
import msgspec
from nats.errors import Error as NatsError
from pymongo import ReturnDocument
from pymongo.errors import BulkWriteError

from deploy.backup import databases, relocation
from deploy.backup.archive import Log, VerifiedArchive, WriteRecord, read_records
from deploy.backup.databases import Snapshot, Tally, split_documents
from deploy.backup.records import (
    CollectionHead,
    Documents,
    End,
    Head,
    Moment,
    Record,
    Secrets,
    Sequences,
)
from deploy.backup.relocation import Document, Relocation
from deploy.backup.stores import DATABASES, Stores
from deploy.backup.tenant_collections import TENANT_COLLECTIONS, Lookup, Row, find_collection
from deploy.platform import keys
from deploy.platform.errors import CommandError
from deploy.platform.mongo_server import Client
from deploy.platform.state import State
from libs.common.bus import Wakeups
from libs.common.clock import now_ms
from libs.common.errors import Unavailable
from libs.common.identity.seal import Seal
from libs.common.scheduling.turns import IDLE_PERIOD
from libs.common.store.ids import FIRST
from libs.common.store.migrations import create_missing
from libs.common.store.mongo import DUPLICATE_KEY
from libs.common.version import VERSION
from services.device.telemetry.partitions import KEY
from services.workflow.triggers.deployed_flows import CHANGES, FLOWS

_PREFIX = "thingway_"
_WORKFLOW = "workflow"
_BATCH = 1000
"""Ids per query."""
_MAX_LISTED = 5
"""SNs that an error message lists."""
_THINGS = "device.things"
_SERIALS = {"device.devices": "snKey", "device.rps": "_id"}
"""Collections whose SNs `device.serials` reserves, with the field of the SN."""
T = TypeVar("T")


def split_name(name: str) -> tuple[str, str]:
    """Return database and collection of `{service}.{collection}`."""
    service, _, collection = name.partition(".")
    return f"{_PREFIX}{service}", collection


def _name(database: str, collection: str) -> str:
    return f"{database.removeprefix(_PREFIX)}.{collection}"


def _seals(state: State) -> tuple[Seal, Seal]:
    """Return an installation's seals: of integrations, and of flows."""
    return Seal(state.secrets["secrets_key"]), Seal(state.secrets["flow_secrets_key"])


async def back_up_tenant(stores: Stores, tenant: str, write: WriteRecord, log: Log) -> Moment:
    """Write the records of one tenant at one time; raise `CommandError` on failure."""
    key = keys.new_private_key()
    await write(Head(VERSION, now_ms(), tenant))
    await write(Secrets(msgspec.json.encode({"key": key})))
    async with (
        stores.connect_reader() as client,
        databases.extended_history(client, log),
        Snapshot.start(client, DATABASES) as snapshot,
    ):
        moment = Moment(now_ms(), snapshot.time, {})
        await write(moment)
        ends = {
            _name(database, counter["_id"]): int(counter["next"])
            for database in DATABASES
            async for counter in _decoded(snapshot, database, "counters")
        }
        await write(Sequences(ends))
        reader = _TenantReader(snapshot, tenant, Seal(key), stores.state)
        await reader.find_ids()
        written = 0
        for row, database, collection in reader.collections():
            async for record in reader.read(row, database, collection):
                await write(record)
            log(f"{database}.{collection}")
            written += 1
    await write(End(written))
    return moment


async def _decoded(
    snapshot: Snapshot, database: str, name: str, query: dict[str, Any] | None = None
) -> AsyncIterator[Document]:
    async for batch in snapshot.batches(database, name, query):
        for document in split_documents(batch):
            yield bson.decode(document)


class _TenantReader:
    """Reader of one tenant's documents from a snapshot."""

    def __init__(self, snapshot: Snapshot, tenant: str, seal: Seal, state: State) -> None:
        self._snapshot = snapshot
        self._tenant = tenant
        accounts, flows = _seals(state)
        self._move = Relocation({}, {}, tenant, (accounts, seal), (flows, seal))
        self._things: list[int] = []
        self._serials: list[str] = []
        self._shapes: set[str] = set()

    async def find_ids(self) -> None:
        """Read the ids that lead to other documents.

        Raises `CommandError` if the tenant does not exist.
        """
        database, tenants = split_name("auth.tenants")
        query = {"_id": self._tenant}
        if not [tenant async for tenant in _decoded(self._snapshot, database, tenants, query)]:
            raise CommandError(f"the tenant {self._tenant} does not exist")
        tenant_query = {"tenant": self._tenant}
        database, devices = split_name("device.devices")
        async for device in _decoded(self._snapshot, database, devices, tenant_query):
            self._things.append(device["_id"])
            self._serials.append(device["snKey"])
            self._shapes |= {device["shape"]} if device.get("shape") else set()
        async for thing in _decoded(self._snapshot, database, "things", tenant_query):
            self._things.append(thing["_id"])
        async for record in _decoded(self._snapshot, database, "rps", tenant_query):
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
                async for shape in _decoded(self._snapshot, database, "shapes", query)
                if shape.get("parent")
            }
            new = parents - self._shapes
            self._shapes |= new

    def collections(self) -> Iterator[tuple[Row, str, str]]:
        """Yield the existing collections of each row, in the order of the rows."""
        for row in TENANT_COLLECTIONS:
            for database, collection in sorted(self._snapshot.collections):
                if row.pattern.fullmatch(_name(database, collection)):
                    yield row, database, collection

    async def read(self, row: Row, database: str, name: str) -> AsyncIterator[Record]:
        """Yield the records of a collection."""
        options = bson.encode(self._snapshot.collections[database, name])
        yield CollectionHead(database, name, options, bson.encode({"indexes": []}))
        tally = Tally()
        for query in self._queries(row):
            async for batch in self._snapshot.batches(database, name, query):
                documents = [
                    self._sealed_for_archive(row, document) for document in split_documents(batch)
                ]
                for document in documents:
                    tally.add(document)
                yield Documents(b"".join(documents))
        yield tally.end

    def _queries(self, row: Row) -> Iterable[dict[str, Any]]:
        match row.lookup:
            case Lookup.THING:
                return _queries_by_id(self._things)
            case Lookup.THING_PREFIX:
                return ({"_id": _history_keys(thing, thing + 1)} for thing in self._things)
            case Lookup.SERIAL:
                return _queries_by_id(self._serials)
            case Lookup.SHAPE:
                return _queries_by_id(sorted(self._shapes))
            case field:
                return [{field: self._tenant}]

    def _sealed_for_archive(self, row: Row, raw: bytes) -> bytes:
        """Return a document with its secrets sealed for the archive."""
        if row.rewrite is relocation.rewrite_design:
            relocation.collect_contexts(bson.decode(raw), self._move)
        elif row.rewrite in relocation.RESEALED:
            document = bson.decode(raw)
            row.rewrite(document, self._move)
            return bson.encode(document)
        return raw


def _queries_by_id(ids: Sequence[Any]) -> Iterator[dict[str, Any]]:
    return ({"_id": {"$in": some}} for some in _batches(ids))


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    following = iter(items)
    while some := list(itertools.islice(following, _BATCH)):
        yield some


def _history_keys(first: int, end: int) -> dict[str, bytes]:
    """Return the range of history keys of the things from `first` up to `end`."""
    return {"$gte": KEY.pack(first, 0, 0), "$lt": KEY.pack(end, 0, 0)}


async def restore_tenant(
    stores: Stores,
    tenant: str,
    secrets: Secrets,
    archive: VerifiedArchive,
    log: Log,
    *,
    compare: bool,
) -> None:
    """Restore a tenant; undo everything on failure.

    The secrets of `archive` have been read already; its other records follow.

    Raises `CommandError`, in particular if the tenant or one of its SNs already exists.
    """
    key = Seal(msgspec.json.decode(secrets.state, type=dict[str, str])["key"])
    async with stores.connect_writers() as clients:
        accounts, flows = _seals(stores.state)
        writer = _TenantWriter(clients, tenant)
        await writer.require_absent()
        await writer.undo(log)
        try:
            async for record in read_records(archive):
                if isinstance(record, Sequences):
                    shifts = await writer.reserve_ids(record.ends)
                    writer.move = Relocation(
                        shifts, record.ends, tenant, (key, accounts), (key, flows)
                    )
                await writer.write(record)
            if compare:
                await writer.compare(archive)
            await writer.notify_flow_replicas()
        except BaseException:
            await writer.undo(log)
            raise
        await writer.delete_marker()
    await _wake_flow_replicas(stores, log)


async def _wake_flow_replicas(stores: Stores, log: Log) -> None:
    """Let the replicas of `workflow` load the new flows before `IDLE_PERIOD` ends."""
    try:
        async with stores.bus(_WORKFLOW) as bus:
            wakeups = Wakeups(bus, _WORKFLOW)
            wakeups.notify(FLOWS)
            await wakeups.send()
            await bus.client.flush()
    except (CommandError, Unavailable, NatsError) as error:
        log(f"the flows start after up to {IDLE_PERIOD:.0f} s: {error}")


class _TenantWriter:
    """Writer of a tenant's documents into an installation."""

    def __init__(self, clients: Mapping[str, Client], tenant: str) -> None:
        self._clients = clients
        self._tenant = tenant
        self.move: Relocation | None = None
        self._row: Row | None = None
        self._collection = ("", "")
        self._markers = self._at("auth.migrations")
        self._marker_id = f"tenant {tenant} on its way in"

    def _at(self, name: str) -> Any:
        database, collection = split_name(name)
        return self._clients[database][database][collection]

    async def require_absent(self) -> None:
        """Raise `CommandError` if the tenant exists."""
        if await self._at("auth.tenants").find_one({"_id": self._tenant}) is not None:
            raise CommandError(f"the tenant {self._tenant} already exists")

    async def reserve_ids(self, ends: Mapping[str, int]) -> dict[str, int]:
        """Reserve a range of each id sequence; return the shift of each."""
        shifts = {}
        for name, end in ends.items():
            database, sequence = split_name(name)
            counters = self._clients[database][database]["counters"]
            before = await counters.find_one_and_update(
                {"_id": sequence},
                [{"$set": {"next": {"$add": [{"$ifNull": ["$next", FIRST]}, end - FIRST]}}}],
                upsert=True,
                return_document=ReturnDocument.BEFORE,
            )
            shifts[name] = (int(before["next"]) if before else FIRST) - FIRST
        first = FIRST + shifts.get(_THINGS, 0)
        end = ends.get(_THINGS, FIRST) + shifts.get(_THINGS, 0)
        await self._markers.insert_one({"_id": self._marker_id, "things": [first, end]})
        return shifts

    async def write(self, record: Record) -> None:
        """Write a record."""
        if isinstance(record, CollectionHead):
            self._row = find_collection(_name(record.database, record.name))
            self._collection = record.database, record.name
            if self._row is None or record.database not in self._clients:
                raise CommandError(
                    f"the archive contains the unknown collection {record.database}.{record.name}"
                )
            database = self._clients[record.database][record.database]
            options: dict[str, Any] = bson.decode(record.options)
            await create_missing(database, record.name, **options)
        elif isinstance(record, Documents) and self._row is not None and record.data:
            documents = [self._relocated(raw) for raw in split_documents(record.data)]
            await self._insert(self._row, documents)

    def _relocated(self, raw: bytes) -> Document:
        if self._row is None or self.move is None:
            raise CommandError("the archive lacks the ends of its id sequences")
        document: Document = bson.decode(raw)
        relocation.shift(document, self._row.ids, self.move)
        if self._row.rewrite is not None:
            self._row.rewrite(document, self.move)
        return document

    async def _insert(self, row: Row, documents: list[Document]) -> None:
        database, name = self._collection
        if row.name in _SERIALS:
            await self._require_free_serials(
                [document[_SERIALS[row.name]] for document in documents]
            )
        try:
            await self._clients[database][database][name].insert_many(documents, ordered=False)
        except BulkWriteError as error:
            faults = error.details["writeErrors"]
            if not row.shared or any(fault["code"] != DUPLICATE_KEY for fault in faults):
                reason = faults[0]["errmsg"] if faults else error
                raise CommandError(
                    f"MongoDB rejects the tenant's documents of {name}: {reason}"
                ) from error

    async def _require_free_serials(self, serials: list[str]) -> None:
        """Raise `CommandError` if an SN is in use: SNs are unique on a platform."""
        found = self._at("device.serials").find({"_id": {"$in": serials}})
        if taken := await found.to_list(_MAX_LISTED):
            listed = ", ".join(serial["_id"] for serial in taken)
            raise CommandError(f"these SNs are already in use here: {listed}")

    async def compare(self, archive: VerifiedArchive) -> None:
        """Raise `CommandError` unless the document counts equal those of the archive."""
        for (database, name), end in archive.collections.items():
            row = find_collection(_name(database, name))
            if row is None or row.lookup in {Lookup.SERIAL, Lookup.SHAPE}:
                continue
            query = await self._query_restored(row)
            found = await self._clients[database][database][name].count_documents(query)
            if found != end.count:
                raise CommandError(
                    f"{database}.{name} has {found} documents, the archive {end.count}"
                )

    async def _query_restored(self, row: Row) -> dict[str, Any]:
        """Return the query for the restored documents of a row."""
        if isinstance(row.lookup, str):
            return {row.lookup: self._tenant}
        marker = await self._markers.find_one({"_id": self._marker_id})
        first, end = marker["things"]
        if row.lookup is Lookup.THING:
            return {"_id": {"$gte": first, "$lt": end}}
        return {"_id": _history_keys(first, end)}

    async def undo(self, log: Log) -> None:
        """Delete what an incomplete attempt wrote."""
        if await self._markers.find_one({"_id": self._marker_id}) is None:
            return
        log(f"deleting the incomplete tenant {self._tenant}")
        tenant_query = {"tenant": self._tenant}
        for name, field in _SERIALS.items():
            serials = [row[field] async for row in self._at(name).find(tenant_query, {field: 1})]
            for some in _batches(serials):
                others = {field: {"$in": some}, "tenant": {"$ne": self._tenant}}
                kept = {row[field] async for row in self._at(name).find(others, {field: 1})}
                gone = {"_id": {"$in": sorted(set(some) - kept)}}
                await self._at("device.serials").delete_many(gone)
        for row in reversed(TENANT_COLLECTIONS):
            if row.lookup in {Lookup.SERIAL, Lookup.SHAPE}:
                continue
            query = await self._query_restored(row)
            database, _ = split_name(row.name)
            for name in await self._clients[database][database].list_collection_names():
                if row.pattern.fullmatch(_name(database, name)):
                    await self._clients[database][database][name].delete_many(query)
        await self.delete_marker()

    async def notify_flow_replicas(self) -> None:
        """Store the new flows as changes, so that the replicas of `workflow` load them."""
        query, now = {"tenant": self._tenant}, datetime.now(UTC)
        found = self._at("workflow.deployments").find(query, {"_id": 1})
        changes = [{"flow": entry["_id"], "at": now} async for entry in found]
        if changes:
            await self._at(f"workflow.{CHANGES}").insert_many(changes)

    async def delete_marker(self) -> None:
        """Delete the marker of an incomplete attempt."""
        await self._markers.delete_one({"_id": self._marker_id})
