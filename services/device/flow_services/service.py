"""Keeps the service entities of flows, on behalf of `workflow`."""

from collections.abc import Sequence
from typing import Protocol

from libs.common.contracts.flows import PutFlowService, RemoveFlowService, Settled


class Store(Protocol):
    """Where the things of flows are kept."""

    async def put(self, wanted: PutFlowService) -> None:
        """Make the thing of a flow, or bring it up to date."""

    async def remove(self, tenant: str, flow_id: int) -> list[int]:
        """Delete the thing of a flow; the ids of the entities that are gone."""


class Grants(Protocol):
    """Keeps grants."""

    async def forget_entities(self, tenant: str, ids: Sequence[int]) -> None:
        """They are gone, so are their grants."""


class FlowServices:
    """The service entities of flows; both operations may come again."""

    def __init__(self, store: Store, grants: Grants) -> None:
        self._store = store
        self._grants = grants

    async def put(self, wanted: PutFlowService) -> Settled:
        """Make the service of a flow like this; raises `Conflict` when its key is taken."""
        await self._store.put(wanted)
        return Settled()

    async def remove(self, wanted: RemoveFlowService) -> Settled:
        """Remove the service of a flow."""
        gone = await self._store.remove(wanted.tenant, wanted.flow_id)
        await self._grants.forget_entities(wanted.tenant, gone)
        return Settled()
