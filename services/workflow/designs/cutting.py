"""Disables flows on behalf of the engine."""

from typing import Protocol

import msgspec

from services.workflow.designs.collaborators import AfterWrite
from services.workflow.designs.deploying import Deploying
from services.workflow.designs.model import Flow
from services.workflow.designs.ports import Session


class Store(Protocol):
    """Where flows are kept."""

    async def get(self, tenant: str, flow_id: int) -> Flow | None:
        """One flow."""

    async def replace(self, before: Flow, after: Flow, also: AfterWrite) -> bool:
        """Set a flow that is still as `before`; False when it is not."""


class Cutting:
    """Switches flows off, whoever made them."""

    def __init__(self, store: Store, deploying: Deploying) -> None:
        self._store = store
        self._deploying = deploying

    async def cut_off(self, tenant: str, flow_id: int, version: int) -> bool:
        """Disable a flow that still runs this version; False when it does not."""
        flow = await self._store.get(tenant, flow_id)
        if flow is None or not flow.enabled or flow.version != version:
            return False

        async def also(session: Session) -> None:
            await self._deploying.stop(tenant, flow_id, session)

        off = msgspec.structs.replace(flow, enabled=False, updated_at=flow.updated_at + 1)
        if not await self._store.replace(flow, off, also):
            return False
        await self._deploying.changed(tenant, flow_id)
        return True
