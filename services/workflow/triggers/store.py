"""The flows that run, in MongoDB: `deployments`, written with the flow in one transaction.

`{_id: flow id, tenant, component, deployed}`; `deployed` is JSON, as parameters have names
that a document may not have. `deployment_changes`: `{flow, at}`, one for each change, kept for an
hour, by which replicas learn of it.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.common.store.mongo import Database, Session, create_missing
from services.workflow.flows.model import Deployments
from services.workflow.runs.records import Deployed

CHANGES = "deployment_changes"
KEPT = 3600
"""Seconds."""
_decode = msgspec.json.Decoder(Deployed).decode


class DeployedFlows(Deployments):
    """Keeps what runs."""

    def __init__(self, database: Database) -> None:
        self._deployments = database["deployments"]
        self._changes = database[CHANGES]

    async def apply(
        self, tenant: str, flow_id: int, deployed: Deployed | None, session: Session
    ) -> None:
        """Keep a flow that runs from now on, drop one that no longer does."""
        await self._changes.insert_one({"flow": flow_id, "at": datetime.now(UTC)}, session=session)
        key = {"_id": flow_id, "tenant": tenant}
        if deployed is None:
            await self._deployments.delete_one(key, session=session)
            return
        fields = {"component": deployed.component, "deployed": msgspec.json.encode(deployed)}
        await self._deployments.replace_one(key, key | fields, upsert=True, session=session)

    async def find(self, tenant: str, flow_id: int) -> Deployed | None:
        """A flow that runs."""
        found = await self._deployments.find_one({"_id": flow_id, "tenant": tenant})
        return None if found is None else _read(found)

    async def of(self, *components: str) -> AsyncIterator[Deployed]:
        """All flows, of all tenants, that begin with one of some node types."""
        async for document in self._deployments.find({"component": {"$in": components}}):
            yield _read(document)

    async def changed_since(self, time: datetime) -> dict[int, Deployed | None]:
        """Flows that were changed since a time, as they are now; None for what runs no longer."""
        ids = await self._changes.distinct("flow", {"at": {"$gte": time}})
        if not ids:
            return {}
        found = self._deployments.find({"_id": {"$in": ids}})
        running = {document["_id"]: _read(document) async for document in found}
        return {flow_id: running.get(flow_id) for flow_id in ids}


async def create_changes(database: Database) -> None:
    """Make what replicas learn of changes by; it is written in transactions."""
    await create_missing(database, CHANGES)
    await database[CHANGES].create_index("at", expireAfterSeconds=KEPT)


def _read(document: dict[str, Any]) -> Deployed:
    return _decode(document["deployed"])
