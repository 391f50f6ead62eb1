"""One tenant, out of an installation and into another that has tenants of its own.

What belongs to it says `collections.ROWS`; ids are shifted and secrets sealed anew on the way in
(`rewriting`). Hashes of passwords and keys travel as they are, so log-ins go on. Streams do not
move: what is said is told to those who listen where it is said.
"""

import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import bson
import msgspec
from pymongo import ReturnDocument
from pymongo.errors import BulkWriteError

from deploy.backup import databases, rewriting
from deploy.backup.backing_up import Put, Say
from deploy.backup.collections import ROWS, By, Row, row_of
from deploy.backup.databases import Snapshot, Tally, split
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
from deploy.backup.restoring import Checked, records_of
from deploy.backup.rewriting import Document, Moving
from deploy.backup.stores import DATABASES, Stores
from deploy.platform import keys
from deploy.platform.errors import CommandError
from deploy.platform.mongo_server import Client
from deploy.platform.state import State
from libs.common.clock import now_ms
from libs.common.identity.seal import Seal
from libs.common.store.ids import FIRST
from libs.common.store.mongo import DUPLICATE_KEY, create_missing
from libs.common.version import VERSION
from services.device.telemetry.partitions import KEY
from services.workflow.triggers.deployed_flows import CHANGES

_PREFIX = "thingway_"
_TOGETHER = 1000
"""Ids of one question."""
_TOLD = 5
"""SNs that a refusal names."""
_THINGS = "device.things"
_SERIALS = {"device.devices": "snKey", "device.rps": "_id"}
"""Whose SNs stand in `serials`, and in which field."""
T = TypeVar("T")


def database_of(name: str) -> tuple[str, str]:
    """Database and collection of `{service}.{collection}`."""
    service, _, collection = name.partition(".")
    return f"{_PREFIX}{service}", collection


def _name(database: str, collection: str) -> str:
    return f"{database.removeprefix(_PREFIX)}.{collection}"


def _own_seals(state: State) -> tuple[Seal, Seal]:
    """Those of an installation: of integrations, and of flows."""
    return Seal(state.secrets["secrets_key"]), Seal(state.secrets["flow_secrets_key"])


async def back_up_tenant(stores: Stores, tenant: str, put: Put, say: Say) -> Moment:
    """Write the records of one tenant as it is at one time; raises `CommandError`."""
    key = keys.new_private_key()
    await put(Head(VERSION, now_ms(), tenant))
    await put(Secrets(msgspec.json.encode({"key": key})))
    async with (
        stores.reading() as client,
        databases.long_window(client, say),
        Snapshot.begin(client, DATABASES) as snapshot,
    ):
        moment = Moment(now_ms(), snapshot.time, {})
        await put(moment)
        ends = {
            _name(database, counter["_id"]): int(counter["next"])
            for database in DATABASES
            async for counter in _decoded(snapshot, database, "counters")
        }
        await put(Sequences(ends))
        leaving = _Leaving(snapshot, tenant, Seal(key), stores.state)
        await leaving.look_around()
        written = 0
        for row, database, collection in leaving.collections():
            async for record in leaving.read(row, database, collection):
                await put(record)
            say(f"{database}.{collection}")
            written += 1
    await put(End(written))
    return moment


async def _decoded(
    snapshot: Snapshot, database: str, name: str, query: dict[str, Any] | None = None
) -> AsyncIterator[Document]:
    async for batch in snapshot.batches(database, name, query):
        for document in split(batch):
            yield bson.decode(document)


class _Leaving:
    """The documents of one tenant."""

    def __init__(self, snapshot: Snapshot, tenant: str, seal: Seal, state: State) -> None:
        self._snapshot = snapshot
        self._tenant = tenant
        accounts, flows = _own_seals(state)
        self._moving = Moving({}, {}, tenant, (accounts, seal), (flows, seal))
        self._things: list[int] = []
        self._serials: list[str] = []
        self._shapes: set[str] = set()

    async def look_around(self) -> None:
        """Read what leads to other documents; raises `CommandError` when there is no tenant."""
        database, tenants = database_of("auth.tenants")
        if not [
            one async for one in _decoded(self._snapshot, database, tenants, {"_id": self._tenant})
        ]:
            raise CommandError(f"there is no tenant {self._tenant}")
        mine = {"tenant": self._tenant}
        database, devices = database_of("device.devices")
        async for device in _decoded(self._snapshot, database, devices, mine):
            self._things.append(device["_id"])
            self._serials.append(device["snKey"])
            self._shapes |= {device["shape"]} if device.get("shape") else set()
        async for thing in _decoded(self._snapshot, database, "things", mine):
            self._things.append(thing["_id"])
        async for record in _decoded(self._snapshot, database, "rps", mine):
            self._serials.append(record["_id"])
        self._things.sort()
        await self._look_up_shapes(database)

    async def _look_up_shapes(self, database: str) -> None:
        """Add the shapes above those that devices name."""
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
        """What there is of each row, in the order of the rows."""
        for row in ROWS:
            for database, collection in sorted(self._snapshot.collections):
                if row.pattern.fullmatch(_name(database, collection)):
                    yield row, database, collection

    async def read(self, row: Row, database: str, name: str) -> AsyncIterator[Record]:
        """The records of a collection."""
        options = bson.encode(self._snapshot.collections[database, name])
        yield CollectionHead(database, name, options, bson.encode({"indexes": []}))
        tally = Tally()
        for query in self._queries(row):
            async for batch in self._snapshot.batches(database, name, query):
                documents = [self._prepared(row, document) for document in split(batch)]
                for document in documents:
                    tally.add(document)
                yield Documents(b"".join(documents))
        yield tally.end

    def _queries(self, row: Row) -> Iterable[dict[str, Any]]:
        match row.found:
            case By.THING:
                return _in(self._things)
            case By.THING_RANGE:
                return ({"_id": _keys_of(thing, thing + 1)} for thing in self._things)
            case By.SERIAL:
                return _in(self._serials)
            case By.SHAPE:
                return _in(sorted(self._shapes))
            case field:
                return [{field: self._tenant}]

    def _prepared(self, row: Row, raw: bytes) -> bytes:
        """A document as it travels: its secrets sealed for the archive."""
        if row.change is rewriting.design:
            rewriting.note_contexts(bson.decode(raw), self._moving)
        elif row.change in rewriting.SEALED:
            document = bson.decode(raw)
            row.change(document, self._moving)
            return bson.encode(document)
        return raw


def _in(ids: Sequence[Any]) -> Iterator[dict[str, Any]]:
    return ({"_id": {"$in": some}} for some in _parts(ids))


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    following = iter(items)
    while some := list(itertools.islice(following, _TOGETHER)):
        yield some


def _keys_of(first: int, end: int) -> dict[str, bytes]:
    """The keys of history of things from one id up to another."""
    return {"$gte": KEY.pack(first, 0, 0), "$lt": KEY.pack(end, 0, 0)}


async def restore_tenant(
    stores: Stores, tenant: str, secrets: Secrets, checked: Checked, say: Say, *, compare: bool
) -> None:
    """Move a tenant in: what follows the secrets. All of it is taken back when that fails.

    Raises `CommandError`, also when the tenant or an SN of it is there already.
    """
    key = Seal(msgspec.json.decode(secrets.state, type=dict[str, str])["key"])
    async with stores.writing() as clients:
        accounts, flows = _own_seals(stores.state)
        arriving = _Arriving(clients, tenant)
        await arriving.require_absent()
        await arriving.clear_up(say)
        try:
            async for record in records_of(checked):
                if isinstance(record, Sequences):
                    shifts = await arriving.set_aside(record.ends)
                    arriving.moving = Moving(
                        shifts, record.ends, tenant, (key, accounts), (key, flows)
                    )
                await arriving.take(record)
            if compare:
                await arriving.compare(checked)
            await arriving.announce()
        except BaseException:
            await arriving.clear_up(say)
            raise
        await arriving.settle()


class _Arriving:
    """A tenant on its way in."""

    def __init__(self, clients: Mapping[str, Client], tenant: str) -> None:
        self._clients = clients
        self._tenant = tenant
        self.moving: Moving | None = None
        self._row: Row | None = None
        self._collection = ("", "")
        self._intents = self._at("auth.migrations")
        self._intent = f"tenant {tenant} on its way in"

    def _at(self, name: str) -> Any:
        database, collection = database_of(name)
        return self._clients[database][database][collection]

    async def require_absent(self) -> None:
        """Raise `CommandError` when there is such a tenant."""
        if await self._at("auth.tenants").find_one({"_id": self._tenant}) is not None:
            raise CommandError(f"there is a tenant {self._tenant} already")

    async def set_aside(self, ends: Mapping[str, int]) -> dict[str, int]:
        """Take a range of each sequence; by how much the ids in it are larger."""
        shifts = {}
        for name, end in ends.items():
            database, sequence = database_of(name)
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
        await self._intents.insert_one({"_id": self._intent, "things": [first, end]})
        return shifts

    async def take(self, record: Record) -> None:
        """Write what a record holds."""
        if isinstance(record, CollectionHead):
            self._row = row_of(_name(record.database, record.name))
            self._collection = record.database, record.name
            if self._row is None or record.database not in self._clients:
                raise CommandError(f"the archive has {record.database}.{record.name}")
            database = self._clients[record.database][record.database]
            options: dict[str, Any] = bson.decode(record.options)
            await create_missing(database, record.name, **options)
        elif isinstance(record, Documents) and self._row is not None and record.data:
            await self._insert(self._row, [self._changed(one) for one in split(record.data)])

    def _changed(self, raw: bytes) -> Document:
        if self._row is None or self.moving is None:
            raise CommandError("the archive does not say where its ids end")
        document: Document = bson.decode(raw)
        rewriting.shift(document, self._row.ids, self.moving)
        if self._row.change is not None:
            self._row.change(document, self.moving)
        return document

    async def _insert(self, row: Row, documents: list[Document]) -> None:
        database, name = self._collection
        if row.name in _SERIALS:
            await self._require_free([one[_SERIALS[row.name]] for one in documents])
        try:
            await self._clients[database][database][name].insert_many(documents, ordered=False)
        except BulkWriteError as error:
            faults = error.details["writeErrors"]
            if not row.shared or any(one["code"] != DUPLICATE_KEY for one in faults):
                said = faults[0]["errmsg"] if faults else error
                raise CommandError(f"{name} does not take the tenant's: {said}") from error

    async def _require_free(self, serials: list[str]) -> None:
        """Raise `CommandError` when somebody here has an SN: it is unique on a platform."""
        taken = await self._at("device.serials").find({"_id": {"$in": serials}}).to_list(_TOLD)
        if taken:
            raise CommandError(f"SNs are taken here: {', '.join(one['_id'] for one in taken)}")

    async def compare(self, checked: Checked) -> None:
        """Raise `CommandError` unless there are as many documents as in the archive."""
        for (database, name), end in checked.collections.items():
            row = row_of(_name(database, name))
            if row is None or row.found in {By.SERIAL, By.SHAPE}:
                continue
            query = await self._mine(row)
            found = await self._clients[database][database][name].count_documents(query)
            if found != end.count:
                raise CommandError(f"{database}.{name} has {found} documents of {end.count}")

    async def _mine(self, row: Row) -> dict[str, Any]:
        """The condition on what has been moved in."""
        if isinstance(row.found, str):
            return {row.found: self._tenant}
        intent = await self._intents.find_one({"_id": self._intent})
        first, end = intent["things"]
        if row.found is By.THING:
            return {"_id": {"$gte": first, "$lt": end}}
        return {"_id": _keys_of(first, end)}

    async def clear_up(self, say: Callable[[str], None]) -> None:
        """Take back what an attempt that did not come to its end has written."""
        if await self._intents.find_one({"_id": self._intent}) is None:
            return
        say(f"taking back what there is of tenant {self._tenant}")
        mine = {"tenant": self._tenant}
        for name, field in _SERIALS.items():
            serials = [one[field] async for one in self._at(name).find(mine, {field: 1})]
            for some in _parts(serials):
                others = {field: {"$in": some}, "tenant": {"$ne": self._tenant}}
                kept = {one[field] async for one in self._at(name).find(others, {field: 1})}
                gone = {"_id": {"$in": sorted(set(some) - kept)}}
                await self._at("device.serials").delete_many(gone)
        for row in reversed(ROWS):
            if row.found in {By.SERIAL, By.SHAPE}:
                continue
            query = await self._mine(row)
            database, _ = database_of(row.name)
            for name in await self._clients[database][database].list_collection_names():
                if row.pattern.fullmatch(_name(database, name)):
                    await self._clients[database][database][name].delete_many(query)
        await self.settle()

    async def announce(self) -> None:
        """Tell the replicas that run which flows have come."""
        query, now = {"tenant": self._tenant}, datetime.now(UTC)
        found = self._at("workflow.deployments").find(query, {"_id": 1})
        changes = [{"flow": one["_id"], "at": now} async for one in found]
        if changes:
            await self._at(f"workflow.{CHANGES}").insert_many(changes)

    async def settle(self) -> None:
        """The attempt is over."""
        await self._intents.delete_one({"_id": self._intent})
