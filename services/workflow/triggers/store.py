"""The flows that run, in MongoDB: `deployments`, written with the flow in one transaction.

`{_id: flow id, tenant, component, deployed}`; `deployed` is JSON, as parameters have names
that a document may not have.
"""

from typing import Any

import msgspec

from libs.common.store.mongo import Database, Session
from services.workflow.flows.model import Deployments
from services.workflow.runs.records import Deployed

_decode = msgspec.json.Decoder(Deployed).decode


class DeployedFlows(Deployments):
    """Keeps what runs."""

    def __init__(self, database: Database) -> None:
        self.collection = database["deployments"]

    async def apply(
        self, tenant: str, flow_id: int, deployed: Deployed | None, session: Session
    ) -> None:
        """Keep a flow that runs from now on, drop one that no longer does."""
        key = {"_id": flow_id, "tenant": tenant}
        if deployed is None:
            await self.collection.delete_one(key, session=session)
            return
        fields = {"component": deployed.component, "deployed": msgspec.json.encode(deployed)}
        await self.collection.replace_one(key, key | fields, upsert=True, session=session)

    async def find(self, tenant: str, flow_id: int) -> Deployed | None:
        """A flow that runs."""
        found = await self.collection.find_one({"_id": flow_id, "tenant": tenant})
        return None if found is None else read_deployed(found)

    async def of(self, component: str) -> list[Deployed]:
        """All flows, of all tenants, that begin with a node type."""
        found = self.collection.find({"component": component})
        return [read_deployed(document) async for document in found]


def read_deployed(document: dict[str, Any]) -> Deployed:
    """What a document of `deployments` says."""
    return _decode(document["deployed"])
