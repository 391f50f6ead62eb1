"""Flows in MongoDB.

`flows`: `{_id, tenant, name, remark, enabled, version, design, userId, createdAt, updatedAt,
stopped}`, with the newest design; `flow_versions`: `{_id: {flow, version}, tenant, design, at}`,
older ones.

`unsettled`: `{_id: flow id, tenant, at}`, flows whose service entity may not be in step yet:
written before anything is done to the entity, which another service has; `at` is the database's
time.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from libs.common.clock import to_ms
from libs.common.store.mongo import Database, Document, Mongo, Session, containing, ids_in_turns
from services.workflow.flows.model import AfterWrite, Flow, SearchFlows

COLUMNS = {
    "id": "_id",
    "name": "name",
    "remark": "remark",
    "enabled": "enabled",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}
"""What a search can be sorted by."""
_WITHOUT_DESIGN = {"design": 0}


class FlowStore:
    """The flows of all tenants."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._flows = mongo.database["flows"]
        self._versions = mongo.database["flow_versions"]

    async def insert(self, flow: Flow, also: AfterWrite) -> None:
        """Add a flow."""

        async def work(session: Session) -> None:
            await self._flows.insert_one(_document(flow), session=session)
            await also(session)

        await self._mongo.transaction(work)

    async def replace(self, before: Flow, after: Flow, also: AfterWrite) -> bool:
        """Set a flow that has not changed since `before`; False when it has, or is gone.

        A design of another version is kept.
        """

        async def work(session: Session) -> bool:
            unchanged = {
                "_id": before.id,
                "tenant": before.tenant,
                "version": before.version,
                "enabled": before.enabled,
                "updatedAt": before.updated_at,
            }
            document = _document(after)
            outcome = await self._flows.replace_one(unchanged, document, session=session)
            if not outcome.matched_count:
                return False
            if after.version != before.version:
                await self._versions.replace_one(
                    {"_id": _version_id(before.id, before.version)},
                    {"tenant": before.tenant, "design": before.design, "at": datetime.now(UTC)},
                    upsert=True,
                    session=session,
                )
            await also(session)
            return True

        return await self._mongo.transaction(work)

    async def get(self, tenant: str, flow_id: int) -> Flow | None:
        """One flow of a tenant."""
        found = await self._flows.find_one({"_id": flow_id, "tenant": tenant})
        return None if found is None else msgspec.convert(found, Flow)

    async def design(self, tenant: str, flow_id: int, version: int) -> str | None:
        """`design_data` of a version; None when there is none."""
        query = {"_id": flow_id, "tenant": tenant, "version": version}
        found = await self._flows.find_one(query, {"design": 1})
        if found is None:
            key = _version_id(flow_id, version)
            found = await self._versions.find_one({"_id": key, "tenant": tenant}, {"design": 1})
        return None if found is None else str(found["design"])

    async def versions(self, tenant: str, flow_id: int) -> dict[int, int]:
        """The older versions that a flow has, with when each was replaced (ms), newest first."""
        keys = {"_id.flow": flow_id, "tenant": tenant}
        found = self._versions.find(keys, {"at": 1}).sort("_id.version", -1)
        return {row["_id"]["version"]: to_ms(row["at"]) async for row in found}

    async def count(self, tenant: str) -> int:
        """How many flows a tenant has."""
        return int(await self._flows.count_documents({"tenant": tenant}))

    async def trim(
        self, flow_id: int, before: int, needed: Collection[int], session: Session
    ) -> None:
        """Delete the designs of versions before one, but for those that are needed."""
        keys = {"_id.flow": flow_id, "_id.version": {"$lt": before, "$nin": list(needed)}}
        await self._versions.delete_many(keys, session=session)

    async def designs(self, flow_id: int, session: Session) -> AsyncIterator[str]:
        """The designs of the older versions that a flow has."""
        found = self._versions.find({"_id.flow": flow_id}, {"design": 1}, session=session)
        async for document in found:
            yield str(document["design"])

    async def remove(self, tenant: str, ids: Sequence[int], also: AfterWrite) -> None:
        """Delete flows with all their designs."""

        async def work(session: Session) -> None:
            query = {"_id": {"$in": list(ids)}, "tenant": tenant}
            await self._flows.delete_many(query, session=session)
            keys = {"_id.flow": {"$in": list(ids)}, "tenant": tenant}
            await self._versions.delete_many(keys, session=session)
            await also(session)

        await self._mongo.transaction(work)

    async def search(
        self, tenant: str, ids: Sequence[int] | None, wanted: SearchFlows
    ) -> tuple[list[Flow], int]:
        """One page of all flows, or of `ids`, without designs, and how many there are."""
        query: Document = {"tenant": tenant}
        if ids is not None:
            query["_id"] = {"$in": list(ids)}
        if wanted.name:
            query["name"] = containing(wanted.name, "name")
        if wanted.enabled is not None:
            query["enabled"] = wanted.enabled
        found = self._flows.find(query, _WITHOUT_DESIGN).sort(wanted.order(COLUMNS))
        rows = found.skip(wanted.skip).limit(wanted.limit)
        flows = [msgspec.convert(row, Flow) async for row in rows]
        total = await self._flows.count_documents(query) if wanted.limit else len(flows)
        return flows, total

    async def present(self, tenant: str, ids: Sequence[int]) -> list[int]:
        """Those of `ids` that there are."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant}
        return [row["_id"] async for row in self._flows.find(query, {"_id": 1})]


class Unsettled(NamedTuple):
    """A flow that was changed at a time."""

    tenant: str
    flow_id: int
    at: datetime


class UnsettledStore:
    """Reads and writes them."""

    def __init__(self, database: Database) -> None:
        self._flows = database["unsettled"]

    async def note(self, tenant: str, ids: Sequence[int], session: Session | None = None) -> None:
        """Flows are about to change."""
        for flow_id in ids:
            change = [{"$set": {"tenant": {"$literal": tenant}, "at": "$$NOW"}}]
            await self._flows.update_one({"_id": flow_id}, change, upsert=True, session=session)

    async def older(self, seconds: int, most: int) -> list[Unsettled]:
        """Those that were noted so long ago that whoever did has ended, tenants in turn."""
        until = {"$dateSubtract": {"startDate": "$$NOW", "unit": "second", "amount": seconds}}
        old = {"$expr": {"$lt": ["$at", until]}}
        ids = await ids_in_turns(self._flows, old, "at", most)
        found = self._flows.find({"_id": {"$in": ids}, **old})
        return [Unsettled(row["tenant"], row["_id"], row["at"]) async for row in found]

    async def settled(self, one: Unsettled) -> None:
        """It is in step, unless it was changed again."""
        await self._flows.delete_one({"_id": one.flow_id, "at": one.at})


async def create_indexes(database: Database) -> None:
    """Make what the queries above need."""
    await database["flows"].create_index([("tenant", 1), ("_id", -1)])
    await database["flow_versions"].create_index([("_id.flow", 1)])


def _version_id(flow_id: int, version: int) -> dict[str, int]:
    return {"flow": flow_id, "version": version}


def _document(flow: Flow) -> Document:
    document: Document = msgspec.to_builtins(flow, builtin_types=(datetime,))
    return document
