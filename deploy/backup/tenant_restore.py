"""Restore of one tenant into another installation.

The restore shifts ids and seals secrets again (`relocation`). Hashes of passwords and keys do not
change, so logins keep working.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import bson
import msgspec
from nats.errors import Error as NatsError
from pymongo import ReturnDocument
from pymongo.errors import BulkWriteError

from deploy.backup import relocation
from deploy.backup.archive import Log, VerifiedArchive, read_records
from deploy.backup.databases import split_documents
from deploy.backup.records import (
    ArchiveRecord,
    CollectionHead,
    Documents,
    NextIds,
    Secrets,
)
from deploy.backup.relocation import Document, Relocation
from deploy.backup.stores import Stores
from deploy.backup.tenant_collections import (
    TENANT_COLLECTIONS,
    Lookup,
    TenantCollection,
    find_collection,
)
from deploy.backup.tenants import (
    history_key_range,
    integration_and_flow_seals,
    join_collection_name,
    split_collection_name,
    split_into_batches,
)
from deploy.platform.errors import CommandError
from deploy.platform.mongo_server import Client
from libs.common.bus import Wakeups
from libs.common.errors import Unavailable
from libs.common.identity.seal import Seal
from libs.common.scheduling.turns import IDLE_PERIOD_SECONDS
from libs.common.settings import SettingsInvalid
from libs.common.store.ids import FIRST_ID
from libs.common.store.migrations import create_missing_collection
from libs.common.store.mongo import DUPLICATE_KEY_CODE
from services.workflow.triggers.deployed_flows import CHANGES_COLLECTION, FLOWS_TOPIC

_WORKFLOW_SERVICE = "workflow"
_MAX_LISTED_SNS = 5
"""Maximum SNs that an error message lists."""
_THING_SEQUENCE = "device.things"
_SN_FIELD_BY_COLLECTION = {"device.devices": "snKey", "device.rps": "_id"}
"""Field with the SN by collection, for collections whose SNs `device.serials` reserves."""


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
    async with stores.connect_mongo_writers() as clients:
        accounts, flows = integration_and_flow_seals(stores.state)
        writer = _TenantWriter(clients, tenant)
        await writer.require_absent()
        await writer.undo(log)
        try:
            async for record in read_records(archive):
                if isinstance(record, NextIds):
                    shifts = await writer.reserve_id_shifts(record.ends)
                    writer.move = Relocation(
                        shifts, record.ends, tenant, (key, accounts), (key, flows)
                    )
                await writer.write(record)
            if compare:
                await writer.compare_counts(archive)
            await writer.record_flow_changes()
        except BaseException:
            await writer.undo(log)
            raise
        await writer.delete_marker()
    await _wake_flow_replicas(stores, log)


async def _wake_flow_replicas(stores: Stores, log: Log) -> None:
    """Let the replicas of `workflow` load the new flows without waiting."""
    try:
        async with stores.connect_bus(_WORKFLOW_SERVICE) as bus:
            wakeups = Wakeups(bus, _WORKFLOW_SERVICE)
            wakeups.notify(FLOWS_TOPIC)
            await wakeups.publish_once()
            await bus.client.flush()
    except (CommandError, SettingsInvalid, Unavailable, NatsError) as error:
        log(f"the flows start after up to {IDLE_PERIOD_SECONDS:.0f} s: {error}")


class _TenantWriter:
    """Writes the records of a tenant's archive into an installation."""

    def __init__(self, clients: Mapping[str, Client], tenant: str) -> None:
        self._clients = clients
        self._tenant = tenant
        self.move: Relocation | None = None
        self._row: TenantCollection | None = None
        self._collection = ("", "")
        self._markers = self._get_collection("auth.migrations")
        self._marker_id = f"tenant {tenant} on its way in"

    def _get_collection(self, name: str) -> Any:
        database, collection = split_collection_name(name)
        return self._clients[database][database][collection]

    async def require_absent(self) -> None:
        """Raise `CommandError` if the tenant exists."""
        if await self._get_collection("auth.tenants").find_one({"_id": self._tenant}) is not None:
            raise CommandError(f"the tenant {self._tenant} already exists")

    async def reserve_id_shifts(self, ends: Mapping[str, int]) -> dict[str, int]:
        """Reserve a range of each id sequence; return by sequence what to add to the ids.

        Stores the marker by which `undo` finds an incomplete restore.
        """
        shifts = {}
        for name, end in ends.items():
            database, sequence = split_collection_name(name)
            counters = self._clients[database][database]["counters"]
            before = await counters.find_one_and_update(
                {"_id": sequence},
                [{"$set": {"next": {"$add": [{"$ifNull": ["$next", FIRST_ID]}, end - FIRST_ID]}}}],
                upsert=True,
                return_document=ReturnDocument.BEFORE,
            )
            shifts[name] = (int(before["next"]) if before else FIRST_ID) - FIRST_ID
        first = FIRST_ID + shifts.get(_THING_SEQUENCE, 0)
        end = ends.get(_THING_SEQUENCE, FIRST_ID) + shifts.get(_THING_SEQUENCE, 0)
        await self._markers.insert_one({"_id": self._marker_id, "things": [first, end]})
        return shifts

    async def write(self, record: ArchiveRecord) -> None:
        """Write the content of an archive record."""
        if isinstance(record, CollectionHead):
            self._row = find_collection(join_collection_name(record.database, record.name))
            self._collection = record.database, record.name
            if self._row is None or record.database not in self._clients:
                raise CommandError(
                    f"the archive contains the unknown collection {record.database}.{record.name}"
                )
            database = self._clients[record.database][record.database]
            options: dict[str, Any] = bson.decode(record.options)
            await create_missing_collection(database, record.name, **options)
        elif isinstance(record, Documents) and self._row is not None and record.data:
            documents = [self._relocate(raw) for raw in split_documents(record.data)]
            await self._insert(self._row, documents)

    def _relocate(self, raw: bytes) -> Document:
        if self._row is None or self.move is None:
            raise CommandError("the archive lacks the ends of its id sequences")
        document: Document = bson.decode(raw)
        relocation.shift_ids(document, self._row.ids, self.move)
        if self._row.rewrite is not None:
            self._row.rewrite(document, self.move)
        return document

    async def _insert(self, row: TenantCollection, documents: list[Document]) -> None:
        database, name = self._collection
        if row.name in _SN_FIELD_BY_COLLECTION:
            await self._require_free_serials(
                [document[_SN_FIELD_BY_COLLECTION[row.name]] for document in documents]
            )
        try:
            await self._clients[database][database][name].insert_many(documents, ordered=False)
        except BulkWriteError as error:
            faults = error.details["writeErrors"]
            if not row.shared or any(fault["code"] != DUPLICATE_KEY_CODE for fault in faults):
                reason = faults[0]["errmsg"] if faults else error
                raise CommandError(
                    f"MongoDB rejects the tenant's documents of {name}: {reason}"
                ) from error

    async def _require_free_serials(self, serials: list[str]) -> None:
        """Raise `CommandError` if an SN is in use: SNs are unique on a platform."""
        cursor = self._get_collection("device.serials").find({"_id": {"$in": serials}})
        if used_serials := await cursor.to_list(_MAX_LISTED_SNS):
            listed = ", ".join(serial["_id"] for serial in used_serials)
            raise CommandError(f"these SNs are already in use here: {listed}")

    async def compare_counts(self, archive: VerifiedArchive) -> None:
        """Raise `CommandError` unless the document counts equal those of the archive.

        SNs and shapes are not counted: their documents do not name a tenant.
        """
        for (database, name), end in archive.collections.items():
            row = find_collection(join_collection_name(database, name))
            if row is None or row.lookup in {Lookup.SERIAL, Lookup.SHAPE}:
                continue
            query = await self._query_restored(row)
            document_count = await self._clients[database][database][name].count_documents(query)
            if document_count != end.count:
                raise CommandError(
                    f"{database}.{name} has {document_count} documents, the archive {end.count}"
                )

    async def _query_restored(self, row: TenantCollection) -> dict[str, Any]:
        """Return the query that finds the restored documents of a collection."""
        if isinstance(row.lookup, str):
            return {row.lookup: self._tenant}
        marker = await self._markers.find_one({"_id": self._marker_id})
        first, end = marker["things"]
        if row.lookup is Lookup.THING:
            return {"_id": {"$gte": first, "$lt": end}}
        return {"_id": history_key_range(first, end)}

    async def undo(self, log: Log) -> None:
        """Delete what an incomplete restore wrote, except shapes, which tenants share."""
        if await self._markers.find_one({"_id": self._marker_id}) is None:
            return
        log(f"deleting the incomplete tenant {self._tenant}")
        tenant_query = {"tenant": self._tenant}
        for name, field in _SN_FIELD_BY_COLLECTION.items():
            serials = [
                row[field]
                async for row in self._get_collection(name).find(tenant_query, {field: 1})
            ]
            for batch in split_into_batches(serials):
                others = {field: {"$in": batch}, "tenant": {"$ne": self._tenant}}
                used_keys = {
                    row[field] async for row in self._get_collection(name).find(others, {field: 1})
                }
                unused = {"_id": {"$in": sorted(set(batch) - used_keys)}}
                await self._get_collection("device.serials").delete_many(unused)
        for row in reversed(TENANT_COLLECTIONS):
            if row.lookup in {Lookup.SERIAL, Lookup.SHAPE}:
                continue
            query = await self._query_restored(row)
            database, _ = split_collection_name(row.name)
            for name in await self._clients[database][database].list_collection_names():
                if row.name_pattern.fullmatch(join_collection_name(database, name)):
                    await self._clients[database][database][name].delete_many(query)
        await self.delete_marker()

    async def record_flow_changes(self) -> None:
        """Store the new flows as changes, so that the replicas of `workflow` load them."""
        query, now = {"tenant": self._tenant}, datetime.now(UTC)
        cursor = self._get_collection("workflow.deployments").find(query, {"_id": 1})
        changes = [{"flow": entry["_id"], "at": now} async for entry in cursor]
        if changes:
            await self._get_collection(f"workflow.{CHANGES_COLLECTION}").insert_many(changes)

    async def delete_marker(self) -> None:
        """Delete the marker that `reserve_id_shifts` stored, because the restore ended."""
        await self._markers.delete_one({"_id": self._marker_id})
