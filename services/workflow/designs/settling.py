"""Brings service entities in step with flows that were left half changed.

A flow and its entity are in two services: whoever saves a flow makes the entity first, and
removes it when the flow has gone. What a crash, or a `device` that was away, left between the
two is put right here.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from libs.common.contracts.flows import RemoveFlowService
from libs.common.errors import Conflict, ThingwayError
from services.workflow.designs.model import Flow
from services.workflow.designs.unsettled import Unsettled

log = logging.getLogger(__name__)

PERIOD = 30.0
"""Seconds between looks."""
GRACE = 120
"""Seconds after which whoever changed a flow has ended, well or not."""
CHUNK = 100


class Store(Protocol):
    """Knows which flows were changed."""

    async def older(self, seconds: int, most: int) -> Sequence[Unsettled]:
        """Flows that were changed so long ago, the oldest first."""

    async def settled(self, one: Unsettled) -> None:
        """It is in step, unless it was changed again."""


class Flows(Protocol):
    """Knows flows."""

    async def get(self, tenant: str, flow_id: int) -> Flow | None:
        """One flow."""


class Deploying(Protocol):
    """Makes the entities of flows."""

    async def restore(self, flow: Flow) -> bool:
        """Make the entity of a flow that is to have one; False for another flow."""


class Entities(Protocol):
    """Has the entities of flows."""

    async def remove(self, service: RemoveFlowService) -> None:
        """Remove a service; it may not be there."""


class Settling:
    """Looks after them, in one replica at a time."""

    def __init__(
        self,
        store: Store,
        flows: Flows,
        deploying: Deploying,
        entities: Entities,
        failures: tuple[type[Exception], ...],
    ) -> None:
        """`failures` are those of a store that is away."""
        self._store = store
        self._flows = flows
        self._deploying = deploying
        self._entities = entities
        self._failures: tuple[type[Exception], ...] = (ThingwayError, *failures)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            try:
                await self.look()
            except self._failures as error:
                log.warning("services of flows have to wait: %s", error)
            await asyncio.sleep(PERIOD)

    async def look(self) -> None:
        """Settle the oldest of those that there are; doing it again does no harm."""
        for one in await self._store.older(GRACE, CHUNK):
            try:
                await self._settle(one)
            except Conflict as error:
                log.warning("flow %d has no service: %s", one.flow_id, error)
            await self._store.settled(one)

    async def _settle(self, one: Unsettled) -> None:
        flow = await self._flows.get(one.tenant, one.flow_id)
        if flow is None or not await self._deploying.restore(flow):
            await self._entities.remove(RemoveFlowService(one.tenant, one.flow_id))
