"""Runs in MongoDB: one document each, written when it begins and when it ends.

`runs`: `{_id, tenant, flow, version, key, cause, entered, status, startedAt, timeCost, error,
trace, replica, sealed, tries}`; `entered` and `trace` are JSON. `flow` and `key` are unique
together, so that one cause makes one run. `replica` has the run in hand while it is RUNNING;
one that is `sealed` has done what must not be done twice.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import msgspec
from pymongo import UpdateOne

from libs.common.bus import Outbox, OutboxEntry
from libs.common.clock import from_ms, to_ms
from libs.common.http.console import PageRequest
from libs.common.store.mongo import (
    DUPLICATE_KEY,
    BulkFailed,
    Database,
    Document,
    Mongo,
    Session,
    drop_present,
    ids_in_turns,
)
from services.workflow.runs.model import Run, TraceItem

COLUMNS = {"id": "_id", "start_time": "startedAt", "time_cost": "timeCost", "status": "status"}
"""What a search can be sorted by."""
_LISTED = {"trace": 0, "entered": 0}
_ENDED = {"timeCost": {"$exists": True}}
"""What the log shows; its indexes have nothing else, so that a run enters them once."""
_traces = msgspec.json.Decoder(list[TraceItem]).decode


class _NotAllHeld(Exception):
    """Another replica has taken over a run, or its flow was deleted."""


class RunStore:
    """The collection `runs`."""

    def __init__(self, mongo: Mongo, outbox: Outbox) -> None:
        self._mongo = mongo
        self._outbox = outbox
        self._runs = mongo.database["runs"]

    async def begin(self, runs: Sequence[Run], replica: str) -> list[bool]:
        """Add runs; tell of each whether it is new."""
        documents = [_begun(run, replica) for run in runs]
        try:
            await self._runs.insert_many(documents, ordered=False)
        except BulkFailed as error:
            faults = (error.details or {})["writeErrors"]
            if any(fault["code"] != DUPLICATE_KEY for fault in faults):
                raise
            known = {fault["index"] for fault in faults}
            return [place not in known for place in range(len(runs))]
        return [True] * len(runs)

    async def seal(self, ids: Sequence[int], replica: str) -> list[bool]:
        """Note that runs must not begin anew; tell of each whether the replica still has it."""
        mine = {"_id": {"$in": list(ids)}, "status": "RUNNING", "replica": replica}
        result = await self._runs.update_many(mine, {"$set": {"sealed": True}})
        if result.matched_count == len(set(ids)):
            return [True] * len(ids)
        held = {row["_id"] async for row in self._runs.find(mine, {"_id": 1})}
        return [run_id in held for run_id in ids]

    async def finish(self, runs: Sequence[tuple[Run, OutboxEntry]], replica: str) -> None:
        """Write how runs of this replica ended, and what is said of them.

        Runs are written anew instead of updated: that costs MongoDB half as much, as long as the
        replica has all of them.
        """
        ended, entries = [run for run, _ in runs], [entry for _, entry in runs]
        documents = [_begun(run, replica) | _ended(run) for run in ended]

        async def write_anew(session: Session) -> list[Document]:
            mine = _held({"$in": [run.id for run in ended]}, replica)
            removed = await self._runs.delete_many(mine, session=session, hint="_id_")
            if removed.deleted_count < len(ended):
                raise _NotAllHeld
            await self._runs.insert_many(documents, session=session)
            return await self._outbox.add(entries, session)

        async def update(session: Session) -> list[Document]:
            updates = [UpdateOne(_held(run.id, replica), {"$set": _ended(run)}) for run in ended]
            await self._runs.bulk_write(updates, ordered=False, session=session)
            return await self._outbox.add(entries, session)

        try:
            said = await self._mongo.transaction(write_anew)
        except _NotAllHeld:
            said = await self._mongo.transaction(update)
        await self._outbox.relay(said)

    async def orphans(
        self, alive: Iterable[str], most: int, without: Iterable[str] = ()
    ) -> list[Run]:
        """Runs that begun in replicas which are no more, tenants in turn, the oldest first.

        Those of the tenants `without` are left out.
        """
        query = {"status": "RUNNING", "replica": {"$nin": list(alive)}, **_but(without)}
        return await self._in_turns(query, most)

    async def left(
        self, replica: str, held: Collection[int], most: int, without: Iterable[str] = ()
    ) -> list[Run]:
        """Runs that a replica has, besides those that it holds and those of tenants `without`."""
        query: Document = {"status": "RUNNING", "replica": replica, **_but(without)}
        query["_id"] = {"$nin": list(held)}
        return await self._in_turns(query, most)

    async def _in_turns(self, query: Document, most: int) -> list[Run]:
        ids = await ids_in_turns(self._runs, query, "_id", most)
        return [_run(document) async for document in self._runs.find({"_id": {"$in": ids}})]

    async def adopt(self, run: Run, replica: str, alive: Iterable[str], *, anew: bool) -> bool:
        """Take over a run; False when somebody else has. `anew`: only one that may begin again."""
        query: Document = {
            "_id": run.id,
            "status": "RUNNING",
            "replica": {"$nin": list(alive)},
        }
        if anew:
            query["sealed"] = {"$ne": True}
        change = {"$set": {"replica": replica}, "$inc": {"tries": 1}}
        return bool((await self._runs.update_one(query, change)).modified_count)

    async def search(
        self, tenant: str, flow_id: int, status: str, wanted: PageRequest
    ) -> tuple[list[Run], int]:
        """One page of a flow's log, of all statuses or one, and how many entries there are."""
        query: Document = {"tenant": tenant, "flow": flow_id, **_ENDED}
        if status:
            query["status"] = status
        found = self._runs.find(query, _LISTED).sort(wanted.order(COLUMNS))
        runs = [_run(row) async for row in found.skip(wanted.skip).limit(wanted.limit)]
        total = await self._runs.count_documents(query) if wanted.limit else len(runs)
        return runs, total

    async def get(self, tenant: str, run_id: int) -> Run | None:
        """One run with its trace."""
        query = {"_id": run_id, "tenant": tenant, **_ENDED}
        found = await self._runs.find_one(query, {"entered": 0})
        return None if found is None else _run(found)

    async def versions_in_hand(self, flow_id: int) -> set[int]:
        """Versions of a flow that runs need which have not ended."""
        query = {"status": "RUNNING", "replica": {"$gte": ""}, "flow": flow_id}
        return {row["version"] async for row in self._runs.find(query, {"version": 1})}

    async def remove(self, tenant: str, flow_ids: Sequence[int]) -> None:
        """Delete all runs of flows."""
        await self._runs.delete_many({"tenant": tenant, "flow": {"$in": list(flow_ids)}})

    async def forget(self, flow_id: int, run_id: int, before: datetime) -> int:
        """Delete what a flow has logged up to a run, of before `before`; how many those were."""
        query = {"flow": flow_id, "_id": {"$lte": run_id}, **_old(before)}
        return int((await self._runs.delete_many(query)).deleted_count)

    async def forget_all(self, before: datetime) -> int:
        """Delete what all flows have logged before a time."""
        return int((await self._runs.delete_many(_old(before))).deleted_count)

    async def surplus(self, flow_id: int, most: int) -> int | None:
        """The newest of the runs that a flow has beyond `most`, None when it has no more."""
        newest = self._runs.find({"flow": flow_id, **_ENDED}, {"_id": 1}).sort("_id", -1)
        rows = await newest.skip(most).to_list(1)
        return rows[0]["_id"] if rows else None


async def create_indexes(database: Database) -> None:
    """Make what the queries above need."""
    runs = database["runs"]
    await runs.create_index([("flow", 1), ("key", 1)], unique=True)
    await runs.create_index([("flow", 1), ("_id", -1)])
    await runs.create_index("startedAt")
    await runs.create_index("replica", partialFilterExpression={"status": "RUNNING"})


async def index_ended(database: Database) -> None:
    """Make what the log and its retention need, of runs that have ended."""
    log = [("flow", 1), ("_id", -1)]
    await database["runs"].create_index(log, name="log", partialFilterExpression=_ENDED)
    await database["runs"].create_index("startedAt", name="age", partialFilterExpression=_ENDED)


async def drop_whole(database: Database) -> None:
    """Version 0.1 looks by them for what a flow has logged."""
    for name in ("flow_1__id_-1", "startedAt_1"):
        await drop_present(database["runs"], name)


def _but(tenants: Iterable[str]) -> Document:
    return {"tenant": {"$nin": list(tenants)}}


def _held(run_id: int | Document, replica: str) -> Document:
    return {"_id": run_id, "status": "RUNNING", "replica": replica}


def _old(before: datetime) -> Document:
    return {"startedAt": {"$lt": before}, **_ENDED}


def _begun(run: Run, replica: str) -> Document:
    return {
        "_id": run.id,
        "tenant": run.tenant,
        "flow": run.flow_id,
        "version": run.version,
        "key": run.cause.key,
        "cause": msgspec.to_builtins(run.cause),
        "entered": msgspec.json.encode(run.entered, enc_hook=str),
        "status": run.status,
        "startedAt": from_ms(run.started_at),
        "replica": replica,
        "tries": run.tries,
        **({"sealed": True} if run.sealed else {}),
    }


def _ended(run: Run) -> Document:
    return {
        "status": run.status,
        "timeCost": run.time_cost,
        "error": run.error,
        "trace": msgspec.json.encode(run.traces),
    }


def _run(document: Document) -> Run:
    trace, entered = document.get("trace"), document.get("entered")
    read = {
        "entered": msgspec.json.decode(entered) if entered else None,
        "startedAt": to_ms(document["startedAt"]),
        "traces": _traces(trace) if trace else [],
    }
    return msgspec.convert(document | read, Run)
