"""Flows in MongoDB.

`flows`: `{_id, tenant, name, remark, enabled, version, design, userId, createdAt, updatedAt,
stopped}`, with the latest design. `flow_versions`: `{_id: {flow, version}, tenant, design, at}`,
with older designs.

`unsettled`: `{_id: flow id, tenant, at}`: flows whose service entity may be out of step. It is
written before `device` changes the entity; `at` is the time of the database.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from libs.common.clock import to_ms
from libs.common.store.mongo import (
    Database,
    Document,
    Mongo,
    Session,
    build_text_condition,
    find_page,
    list_ids_in_turns,
)
from services.workflow.flows.model import Flow, SearchFlows, TransactionStep

SORT_FIELD_BY_COLUMN = {
    "id": "_id",
    "name": "name",
    "remark": "remark",
    "enabled": "enabled",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}
"""Sortable columns."""
_WITHOUT_DESIGN = {"design": 0}


class FlowStore:
    """The collections `flows` and `flow_versions`."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._flows = mongo.database["flows"]
        self._versions = mongo.database["flow_versions"]

    async def insert(self, flow: Flow, extra_step: TransactionStep) -> None:
        """Add a flow, with the writes of `extra_step` in the same transaction."""

        async def insert_flow(session: Session) -> None:
            await self._flows.insert_one(_document(flow), session=session)
            await extra_step(session)

        await self._mongo.transaction(insert_flow)

    async def replace(self, before: Flow, after: Flow, extra_step: TransactionStep) -> bool:
        """Replace a flow; return False if it is not the same as `before` any more.

        If the version changes, the design of `before` is stored as an old version.
        """

        async def replace_flow(session: Session) -> bool:
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
                    {"_id": _version_document_id(before.id, before.version)},
                    {"tenant": before.tenant, "design": before.design, "at": datetime.now(UTC)},
                    upsert=True,
                    session=session,
                )
            await extra_step(session)
            return True

        return await self._mongo.transaction(replace_flow)

    async def get(self, tenant: str, flow_id: int) -> Flow | None:
        """Return one flow of a tenant."""
        document = await self._flows.find_one({"_id": flow_id, "tenant": tenant})
        return None if document is None else msgspec.convert(document, Flow)

    async def get_design(self, tenant: str, flow_id: int, version: int) -> str | None:
        """Return `design_data` of a version, or None."""
        query = {"_id": flow_id, "tenant": tenant, "version": version}
        document = await self._flows.find_one(query, {"design": 1})
        if document is None:
            key = _version_document_id(flow_id, version)
            document = await self._versions.find_one({"_id": key, "tenant": tenant}, {"design": 1})
        return None if document is None else str(document["design"])

    async def list_old_versions(self, tenant: str, flow_id: int) -> dict[int, int]:
        """Return when (ms) each older version was replaced, by version, newest first."""
        keys = {"_id.flow": flow_id, "tenant": tenant}
        cursor = self._versions.find(keys, {"at": 1}).sort("_id.version", -1)
        return {row["_id"]["version"]: to_ms(row["at"]) async for row in cursor}

    async def count(self, tenant: str) -> int:
        """Return the number of flows of a tenant."""
        return int(await self._flows.count_documents({"tenant": tenant}))

    async def delete_old_versions(
        self, flow_id: int, before: int, needed: Collection[int], session: Session
    ) -> None:
        """Delete the designs of versions lower than `before`, except those in `needed`."""
        keys = {"_id.flow": flow_id, "_id.version": {"$lt": before, "$nin": list(needed)}}
        await self._versions.delete_many(keys, session=session)

    async def iterate_old_designs(self, flow_id: int, session: Session) -> AsyncIterator[str]:
        """Yield the designs of the older versions of a flow."""
        cursor = self._versions.find({"_id.flow": flow_id}, {"design": 1}, session=session)
        async for document in cursor:
            yield str(document["design"])

    async def remove(self, tenant: str, ids: Sequence[int], extra_step: TransactionStep) -> None:
        """Delete flows with all their designs."""

        async def delete_flows(session: Session) -> None:
            query = {"_id": {"$in": list(ids)}, "tenant": tenant}
            await self._flows.delete_many(query, session=session)
            keys = {"_id.flow": {"$in": list(ids)}, "tenant": tenant}
            await self._versions.delete_many(keys, session=session)
            await extra_step(session)

        await self._mongo.transaction(delete_flows)

    async def search(
        self, tenant: str, ids: Sequence[int] | None, request: SearchFlows
    ) -> tuple[list[Flow], int]:
        """Return one page of flows without designs, and the number of all matches.

        Only flows with an id in `ids` match; None means all flows.
        """
        query: Document = {"tenant": tenant}
        if ids is not None:
            query["_id"] = {"$in": list(ids)}
        if request.name:
            query["name"] = build_text_condition(request.name, "name")
        if request.enabled is not None:
            query["enabled"] = request.enabled
        order = request.order(SORT_FIELD_BY_COLUMN)
        rows, total = await find_page(
            self._flows, query, order, request.skip, request.limit, _WITHOUT_DESIGN
        )
        return msgspec.convert(rows, list[Flow]), total

    async def list_existing(self, tenant: str, ids: Sequence[int]) -> list[int]:
        """Return those of `ids` that exist."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant}
        return [row["_id"] async for row in self._flows.find(query, {"_id": 1})]


class UnsettledFlow(NamedTuple):
    """A flow whose service entity may be out of step since `at`."""

    tenant: str
    flow_id: int
    at: datetime


class UnsettledStore:
    """The collection `unsettled`."""

    def __init__(self, database: Database) -> None:
        self._flows = database["unsettled"]

    async def mark(self, tenant: str, ids: Sequence[int], session: Session | None = None) -> None:
        """Mark flows before they change."""
        for flow_id in ids:
            change = [{"$set": {"tenant": {"$literal": tenant}, "at": "$$NOW"}}]
            await self._flows.update_one({"_id": flow_id}, change, upsert=True, session=session)

    async def list_older(self, seconds: int, maximum: int) -> list[UnsettledFlow]:
        """Return flows marked more than `seconds` ago, fairly by tenant."""
        until = {"$dateSubtract": {"startDate": "$$NOW", "unit": "second", "amount": seconds}}
        old = {"$expr": {"$lt": ["$at", until]}}
        ids = await list_ids_in_turns(self._flows, old, "at", maximum)
        cursor = self._flows.find({"_id": {"$in": ids}, **old})
        return [UnsettledFlow(row["tenant"], row["_id"], row["at"]) async for row in cursor]

    async def unmark(self, flow: UnsettledFlow) -> None:
        """Remove the mark unless the flow was marked again."""
        await self._flows.delete_one({"_id": flow.flow_id, "at": flow.at})


def _version_document_id(flow_id: int, version: int) -> dict[str, int]:
    return {"flow": flow_id, "version": version}


def _document(flow: Flow) -> Document:
    document: Document = msgspec.to_builtins(flow, builtin_types=(datetime,))
    return document
