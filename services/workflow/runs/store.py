"""Runs in MongoDB: one document each; deferred runs are written only at their end.

`runs`: `{_id, tenant, flow, version, key, cause, entered, status, startedAt, timeCost, error,
trace, replica, sealed, tries}`. `entered` and `trace` are JSON. `flow` and `key` are unique
together, so that one cause starts one run. `replica` executes the run while it is RUNNING. A run
that has `sealed` set has started an unrepeatable step.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from pymongo import InsertOne, ReplaceOne

from libs.common.bus import Outbox, OutboxEntry
from libs.common.clock import from_ms, to_ms
from libs.common.http.console import PageRequest
from libs.common.store.mongo import (
    DUPLICATE_KEY_CODE,
    BulkFailed,
    Document,
    Mongo,
    Session,
    find_page,
    list_ids_in_turns,
)
from services.workflow.runs.model import Run, RunIdentity, TraceItem

SORT_FIELD_BY_COLUMN = {
    "id": "_id",
    "start_time": "startedAt",
    "time_cost": "timeCost",
    "status": "status",
}
"""Sortable columns."""
_LIST_PROJECTION = {"trace": 0, "entered": 0}
ENDED_RUNS_FILTER = {"timeCost": {"$exists": True}}
"""Filter of the runs in the log. Indexes with this filter have only ended runs, so that a run is
indexed only once."""
_decode_traces = msgspec.json.Decoder(list[TraceItem]).decode


class _RunsTakenOver(Exception):
    """Another replica has taken over a run, or its flow was deleted."""


class RunStore:
    """The collection `runs`."""

    def __init__(self, mongo: Mongo, outbox: Outbox) -> None:
        self._mongo = mongo
        self._outbox = outbox
        self._runs = mongo.database["runs"]

    async def insert_starts(self, runs: Sequence[Run], replica: str) -> list[bool]:
        """Insert runs; return for each whether it is new."""
        documents = [_start_document(run, replica) for run in runs]
        try:
            await self._runs.insert_many(documents, ordered=False)
        except BulkFailed as error:
            duplicates = _find_duplicate_positions(error)
            return [place not in duplicates for place in range(len(runs))]
        return [True] * len(runs)

    async def _find_recorded(self, runs: Sequence[Run], session: Session) -> set[RunIdentity]:
        """Return the identities of those `runs` whose causes have started a run before."""
        query = [{"flow": run.flow_id, "key": run.cause.key} for run in runs]
        if not query:
            return set()
        cursor = self._runs.find({"$or": query}, {"flow": 1, "key": 1}, session=session)
        return {(row["flow"], row["key"]) async for row in cursor}

    async def mark_unrepeatable(self, ids: Sequence[int], replica: str) -> list[bool]:
        """Mark runs as not restartable; return for each whether `replica` still has it."""
        owned_runs = {"_id": {"$in": list(ids)}, "status": "RUNNING", "replica": replica}
        result = await self._runs.update_many(owned_runs, {"$set": {"sealed": True}})
        if result.matched_count == len(set(ids)):
            return [True] * len(ids)
        owned = {row["_id"] async for row in self._runs.find(owned_runs, {"_id": 1})}
        return [run_id in owned for run_id in ids]

    async def store_ends(self, runs: Sequence[tuple[Run, OutboxEntry]], replica: str) -> None:
        """Store results and events of runs of this replica.

        Recorded runs are replaced, as updates are twice as expensive in MongoDB. Recorded runs that
        `replica` does not execute any more are left out, and deferred runs whose cause has started
        a run before.
        """
        documents = {run.id: _start_document(run, replica) | _end_fields(run) for run, _ in runs}
        recorded_ids = [run.id for run, _ in runs if run.recorded]

        async def write_all(session: Session) -> list[Document]:
            if recorded_ids:
                recorded_runs = _owned_filter({"$in": recorded_ids}, replica)
                removed = await self._runs.delete_many(recorded_runs, session=session, hint="_id_")
                if removed.deleted_count < len(recorded_ids):
                    raise _RunsTakenOver
            try:
                await self._runs.insert_many(documents.values(), session=session)
            except BulkFailed as error:
                _find_duplicate_positions(error)
                raise _RunsTakenOver from error
            return await self._outbox.store_entries([entry for _, entry in runs], session)

        async def write_own(session: Session) -> list[Document]:
            recorded_runs = self._runs.find(
                _owned_filter({"$in": list(documents)}, replica), session=session
            )
            owned = {row["_id"] async for row in recorded_runs}
            deferred = [run for run, _ in runs if not run.recorded]
            known_identities = await self._find_recorded(deferred, session)
            new = {run.id for run in deferred if run.identity not in known_identities}
            if not owned | new:
                return []
            await self._runs.bulk_write(
                [
                    *(InsertOne(documents[run_id]) for run_id in new),
                    *(ReplaceOne({"_id": run_id}, documents[run_id]) for run_id in owned),
                ],
                session=session,
            )
            entries = [entry for run, entry in runs if run.id in owned | new]
            return await self._outbox.store_entries(entries, session)

        try:
            outgoing = await self._mongo.transaction(write_all)
        except _RunsTakenOver:
            outgoing = await self._mongo.transaction(write_own)
        await self._outbox.publish_stored(outgoing)

    async def list_orphans(
        self, alive: Iterable[str], maximum: int, without: Iterable[str] = ()
    ) -> list[Run]:
        """Return runs of stopped replicas, oldest first, fairly by tenant.

        Runs of the tenants `without` are left out.
        """
        query = {"status": "RUNNING", "replica": {"$nin": list(alive)}, **_except_tenants(without)}
        return await self._find_fairly_by_tenant(query, maximum)

    async def list_pending(
        self, replica: str, active_ids: Iterable[int], maximum: int, without: Iterable[str] = ()
    ) -> list[Run]:
        """Return the unfinished runs of a replica, fairly by tenant.

        Runs in `active_ids` and runs of the tenants `without` are left out.
        """
        query: Document = {"status": "RUNNING", "replica": replica, **_except_tenants(without)}
        query["_id"] = {"$nin": list(active_ids)}
        return await self._find_fairly_by_tenant(query, maximum)

    async def _find_fairly_by_tenant(self, query: Document, maximum: int) -> list[Run]:
        ids = await list_ids_in_turns(self._runs, query, "_id", maximum)
        if not ids:
            return []
        return [_decode_run(document) async for document in self._runs.find({"_id": {"$in": ids}})]

    async def take_over(
        self, run: Run, replica: str, alive: Iterable[str], *, restart: bool
    ) -> bool:
        """Take over a run; return whether it was taken over.

        A run that has ended or belongs to a replica in `alive` is not taken over. With
        `restart`, neither is a run that has started an unrepeatable step.
        """
        query: Document = {
            "_id": run.id,
            "status": "RUNNING",
            "replica": {"$nin": list(alive)},
        }
        if restart:
            query["sealed"] = {"$ne": True}
        change = {"$set": {"replica": replica}, "$inc": {"tries": 1}}
        return bool((await self._runs.update_one(query, change)).modified_count)

    async def search(
        self, tenant: str, flow_id: int, status: str, request: PageRequest
    ) -> tuple[list[Run], int]:
        """Return one page of a flow's ended runs, and the number of all matches.

        The runs have no trace. An empty `status` means all statuses.
        """
        query: Document = {"tenant": tenant, "flow": flow_id, **ENDED_RUNS_FILTER}
        if status:
            query["status"] = status
        order = request.order(SORT_FIELD_BY_COLUMN)
        rows, total = await find_page(
            self._runs, query, order, request.skip, request.limit, _LIST_PROJECTION
        )
        return [_decode_run(row) for row in rows], total

    async def get(self, tenant: str, run_id: int) -> Run | None:
        """Return an ended run with its trace, but without the output of its entry."""
        query = {"_id": run_id, "tenant": tenant, **ENDED_RUNS_FILTER}
        document = await self._runs.find_one(query, {"entered": 0})
        return None if document is None else _decode_run(document)

    async def list_running_versions(self, flow_id: int) -> set[int]:
        """Return the versions of a flow that current runs need."""
        query = {"status": "RUNNING", "replica": {"$gte": ""}, "flow": flow_id}
        return {row["version"] async for row in self._runs.find(query, {"version": 1})}

    async def remove(self, tenant: str, flow_ids: Sequence[int]) -> None:
        """Delete all runs of flows."""
        await self._runs.delete_many({"tenant": tenant, "flow": {"$in": list(flow_ids)}})

    async def delete_surplus(self, flow_id: int, run_id: int, before: datetime) -> int:
        """Delete a flow's runs up to `run_id` and before `before`; return the number."""
        query = {"flow": flow_id, "_id": {"$lte": run_id}, **_older_filter(before)}
        return int((await self._runs.delete_many(query)).deleted_count)

    async def delete_older(self, before: datetime) -> int:
        """Delete ended runs before a time; return the number."""
        return int((await self._runs.delete_many(_older_filter(before))).deleted_count)

    async def find_latest_surplus(self, flow_id: int, maximum: int) -> int | None:
        """Return the id of the latest run beyond the `maximum` latest ones, or None."""
        newest = self._runs.find({"flow": flow_id, **ENDED_RUNS_FILTER}, {"_id": 1}).sort("_id", -1)
        rows = await newest.skip(maximum).to_list(1)
        return rows[0]["_id"] if rows else None


def _find_duplicate_positions(error: BulkFailed) -> set[int]:
    """Return the positions of the documents that exist already; raise other errors."""
    faults = (error.details or {})["writeErrors"]
    if any(fault["code"] != DUPLICATE_KEY_CODE for fault in faults):
        raise error
    return {fault["index"] for fault in faults}


def _except_tenants(tenants: Iterable[str]) -> Document:
    return {"tenant": {"$nin": list(tenants)}}


def _owned_filter(run_id: int | Document, replica: str) -> Document:
    return {"_id": run_id, "status": "RUNNING", "replica": replica}


def _older_filter(before: datetime) -> Document:
    return {"startedAt": {"$lt": before}, **ENDED_RUNS_FILTER}


def _start_document(run: Run, replica: str) -> Document:
    return {
        "_id": run.id,
        "tenant": run.tenant,
        "flow": run.flow_id,
        "version": run.version,
        "key": run.cause.key,
        "cause": msgspec.to_builtins(run.cause),
        "entered": msgspec.json.encode(run.entered, enc_hook=str),
        "status": "RUNNING",
        "startedAt": from_ms(run.started_at),
        "replica": replica,
        "tries": run.tries,
        **({"sealed": True} if run.has_unrepeatable_step else {}),
    }


def _end_fields(run: Run) -> Document:
    return {
        "status": run.status,
        "timeCost": run.time_cost,
        "error": run.error,
        "trace": msgspec.json.encode(run.traces),
    }


def _decode_run(document: Document) -> Run:
    trace, entered = document.get("trace"), document.get("entered")
    read = {
        "entered": msgspec.json.decode(entered) if entered else None,
        "startedAt": to_ms(document["startedAt"]),
        "traces": _decode_traces(trace) if trace else [],
    }
    return msgspec.convert(document | read, Run)
