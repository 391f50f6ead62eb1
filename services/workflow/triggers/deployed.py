"""The flows that run, in MongoDB: `deployments`, written with the flow in one transaction.

`{_id: flow id, tenant, component, deployed}`; `deployed` is JSON, as parameters have names
that a document may not have.
"""

from typing import Any

import msgspec

from libs.common.store.mongo import Database
from services.workflow.designs.ports import SavedFlow, Session
from services.workflow.runs.records import Deployed

_decode = msgspec.json.Decoder(Deployed).decode


class DeployedFlows:
    """Keeps what runs; implements `designs.ports.Deployments`."""

    def __init__(self, database: Database) -> None:
        self.collection: Any = database["deployments"]

    async def prepare(self, flow: SavedFlow) -> None:
        """Nothing has to be there before."""

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

    async def changed(self, tenant: str, flow_id: int) -> None:
        """Nothing is kept in memory here."""

    async def forget(self, tenant: str, flow_id: int) -> None:
        """`apply` has dropped it."""

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
