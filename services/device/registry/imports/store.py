"""Imports in MongoDB.

`imports`: `{_id, tenant, userId, superAdmin, access, integration, columns: [key], state, total,
created, updated, failed, waiting?, createdAt, endedAt?}`; `waiting` is set while its integration is
not running. `import_rows`: `{import, row, cells, createdAt, outcome?, identifier?, faults?}`; the
cells are removed when the row succeeds. Imports are deleted after seven days. Ended imports are
deleted earlier when the tenant has more than `MAX_ENDED_IMPORTS`.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from pymongo import InsertOne, UpdateOne

from libs.common.bus import Wakeups
from libs.common.errors import NotFound
from libs.common.identity import Principal, PrincipalKind
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Document, Mongo, Session
from services.device.registry.imports.columns import CellFault
from services.device.registry.imports.schemas import (
    ImportProgress,
    ImportState,
    RowFaults,
    RowOutcome,
    WaitingFor,
)

MAX_ENDED_IMPORTS = 20
IMPORTS_TOPIC = "imports"
"""Topic of `Wakeups`: an import has started."""
COUNTER_BY_OUTCOME: Mapping[RowOutcome, str] = {
    "CREATED": "created",
    "UPDATED": "updated",
    "FAILED": "failed",
}


class Import(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """An import, running or ended."""

    id: int = msgspec.field(name="_id")
    tenant: str
    user_id: int
    super_admin: bool
    access: int
    integration: str
    columns: list[str]
    state: ImportState
    total: int
    created: int
    updated: int
    failed: int
    created_at: datetime
    ended_at: datetime | None = None
    waiting: bool = False
    """Whether its integration is not running."""

    @property
    def principal(self) -> Principal:
        """Return the user on whose behalf the import runs, with the grants at its start."""
        return Principal(
            kind=PrincipalKind.USER,
            tenant=self.tenant,
            subject=str(self.user_id),
            super_admin=self.super_admin,
            access=self.access,
        )


class ImportRow(msgspec.Struct, kw_only=True):
    """A row of an import and its outcome."""

    number: int = msgspec.field(name="row")
    cells: list[Any]
    faults: list[CellFault] = []
    outcome: RowOutcome | None = None
    identifier: str | None = None


class ImportStore:
    """Reads and writes imports and their rows."""

    def __init__(self, mongo: Mongo, wakeups: Wakeups) -> None:
        self._mongo = mongo
        self.wakeups = wakeups
        self._imports = mongo.database["imports"]
        self._rows = mongo.database["import_rows"]
        self._ids = IdAllocator(mongo.database, "imports", block=20)

    async def insert(
        self,
        principal: Principal,
        integration: str,
        columns: Sequence[str],
        rows: Sequence[ImportRow],
        *,
        rejected: bool,
    ) -> int:
        """Insert an import with its rows and return its id; it runs unless it is `rejected`."""
        import_id, now = await self._ids.allocate(), datetime.now(UTC)
        await self._delete_oldest_ended(principal.tenant)
        await self._rows.bulk_write(
            [
                InsertOne({"import": import_id, "createdAt": now, **msgspec.to_builtins(row)})
                for row in rows
            ],
            ordered=False,
        )
        job = Import(
            id=import_id,
            tenant=principal.tenant,
            user_id=principal.user_id,
            super_admin=principal.super_admin,
            access=principal.access,
            integration=integration,
            columns=list(columns),
            state="REFUSED" if rejected else "RUNNING",
            total=len(rows),
            created=0,
            updated=0,
            failed=sum(row.outcome == "FAILED" for row in rows),
            created_at=now,
            ended_at=now if rejected else None,
        )
        await self._imports.insert_one(msgspec.to_builtins(job, builtin_types=(datetime,)))
        self.wakeups.notify(IMPORTS_TOPIC)
        return import_id

    async def _delete_oldest_ended(self, tenant: str) -> None:
        ended = {"tenant": tenant, "state": {"$ne": "RUNNING"}}
        old = self._imports.find(ended, {"_id": 1}, sort=[("_id", -1)], skip=MAX_ENDED_IMPORTS - 1)
        ids = [found["_id"] async for found in old]
        if ids:
            await self._imports.delete_many({"_id": {"$in": ids}})
            await self._rows.delete_many({"import": {"$in": ids}})

    async def list_running_tenants(self, _: float = 0) -> list[str]:
        """Return the tenants with running imports."""
        return list(await self._imports.distinct("tenant", {"state": "RUNNING"}))

    async def list_running(self, tenant: str) -> list[Import]:
        """Return the running imports of a tenant, the oldest first."""
        query = {"state": "RUNNING", "tenant": tenant}
        documents = await self._imports.find(query, sort=[("_id", 1)]).to_list(None)
        return msgspec.convert(documents, list[Import])

    async def find_progress(self, tenant: str, import_id: int) -> ImportProgress:
        """Return the progress of an import; raise `NotFound`."""
        job = await self.find(tenant, import_id)
        return _progress_response(job, await self._find_active_id(tenant))

    async def list_newest(
        self, tenant: str, integrations: Iterable[str] | None
    ) -> list[ImportProgress]:
        """Return the imports of integrations (None: all), the newest first."""
        query: Document = {"tenant": tenant}
        if integrations is not None:
            query["integration"] = {"$in": list(integrations)}
        cursor = self._imports.find(query, sort=[("_id", -1)], limit=2 * MAX_ENDED_IMPORTS)
        active_id = await self._find_active_id(tenant)
        return [_progress_response(msgspec.convert(row, Import), active_id) async for row in cursor]

    async def _find_active_id(self, tenant: str) -> int | None:
        """Return the import of a tenant that progresses: the oldest that does not wait."""
        return next((job.id for job in await self.list_running(tenant) if not job.waiting), None)

    async def find(self, tenant: str, import_id: int) -> Import:
        """Return an import, running or ended; raise `NotFound`."""
        document = await self._imports.find_one({"_id": import_id, "tenant": tenant})
        if document is None:
            raise NotFound(f"there is no import {import_id}", field="import_id")
        return msgspec.convert(document, Import)

    async def is_running(self, import_id: int) -> bool:
        """Return whether the import has neither ended nor been cancelled."""
        query = {"_id": import_id, "state": "RUNNING"}
        return await self._imports.find_one(query, {"_id": 1}) is not None

    async def end_import(self, import_id: int, state: str) -> None:
        """End a running import as done or cancelled."""
        await self._imports.update_one(
            {"_id": import_id, "state": "RUNNING"},
            {"$set": {"state": state, "endedAt": datetime.now(UTC)}},
        )

    async def set_waiting(self, import_id: int, *, waiting: bool) -> None:
        """Record whether the import waits because its integration is not running."""
        change = {"$set": {"waiting": True}} if waiting else {"$unset": {"waiting": True}}
        await self._imports.update_one({"_id": import_id}, change)

    async def find_pending_rows(self, import_id: int, limit: int) -> list[ImportRow]:
        """Return the next rows without an outcome."""
        query = {"import": import_id, "outcome": None}
        documents = await self._rows.find(query, sort=[("row", 1)], limit=limit).to_list(None)
        return msgspec.convert(documents, list[ImportRow])

    async def find_row_numbers_by_identifier(self, import_id: int) -> dict[str, int]:
        """Return the row number of each device identifier; rows without identifier are left out."""
        query = {"import": import_id, "identifier": {"$ne": None}}
        cursor = self._rows.find(query, {"row": 1, "identifier": 1})
        return {row["identifier"]: row["row"] async for row in cursor}

    async def write_outcomes(self, import_id: int, rows: Sequence[ImportRow]) -> None:
        """Write and count the outcomes of rows in one transaction; skip rows without an outcome."""
        counts = dict.fromkeys(COUNTER_BY_OUTCOME.values(), 0)
        operations = []
        for row in rows:
            if row.outcome is None:
                continue
            counts[COUNTER_BY_OUTCOME[row.outcome]] += 1
            change = {
                "outcome": row.outcome,
                "identifier": row.identifier,
                "faults": msgspec.to_builtins(row.faults),
            }
            if row.outcome != "FAILED":
                change["cells"] = []  # they may contain keys
            operations.append(UpdateOne({"import": import_id, "row": row.number}, {"$set": change}))

        async def write_rows(session: Session) -> None:
            await self._rows.bulk_write(operations, ordered=False, session=session)
            await self._imports.update_one({"_id": import_id}, {"$inc": counts}, session=session)

        if operations:
            await self._mongo.transaction(write_rows)

    async def find_faults(
        self, import_id: int, skip: int, limit: int
    ) -> tuple[list[RowFaults], int]:
        """Return a page of the rows with faults, and the total."""
        query = {"import": import_id, "outcome": "FAILED"}
        cursor = self._rows.find(query, sort=[("row", 1)], skip=skip, limit=limit)
        rows = msgspec.convert(await cursor.to_list(None), list[ImportRow])
        row_faults = [RowFaults(row=row.number, faults=row.faults) for row in rows]
        return row_faults, await self._rows.count_documents(query)

    async def find_created_identifiers(
        self, import_id: int, skip: int, limit: int
    ) -> tuple[list[str], int]:
        """Return a page of the identifiers of created devices, and the total."""
        query = {"import": import_id, "outcome": "CREATED"}
        cursor = self._rows.find(query, sort=[("row", 1)], skip=skip, limit=limit)
        identifiers = [row["identifier"] async for row in cursor]
        return identifiers, await self._rows.count_documents(query)

    async def iterate_failed_rows(self, import_id: int) -> AsyncIterator[ImportRow]:
        """Yield the rows with faults."""
        query = {"import": import_id, "outcome": "FAILED"}
        async for document in self._rows.find(query, sort=[("row", 1)]):
            yield msgspec.convert(document, ImportRow)


def _progress_response(job: Import, active_id: int | None) -> ImportProgress:
    waiting_for: WaitingFor | None = None
    if job.state == "RUNNING" and job.id != active_id:
        waiting_for = "INTEGRATION" if job.waiting else "EARLIER_IMPORT"
    return ImportProgress.from_fields(job, import_id=str(job.id), waiting_for=waiting_for)
