"""Brings service entities in step with flows that were left half changed.

A flow and its entity are in two services: whoever saves a flow makes the entity first, and
removes it when the flow has gone. What a crash, or a `device` that was away, left between the
two is put right here.
"""

import logging
from dataclasses import dataclass

from libs.common.errors import Conflict
from services.workflow.entities import Entities
from services.workflow.flows.deploying import Deploying
from services.workflow.flows.store import FlowStore, Unsettled, UnsettledStore

log = logging.getLogger(__name__)

PERIOD = 30.0
"""Seconds between looks."""
GRACE = 120
"""Seconds after which whoever changed a flow has ended, well or not."""
CHUNK = 100


@dataclass(frozen=True)
class Settling:
    """Looks after them, in one replica at a time."""

    store: UnsettledStore
    flows: FlowStore
    deploying: Deploying
    entities: Entities

    async def look(self) -> None:
        """Settle the oldest of those that there are; doing it again does no harm."""
        for one in await self.store.older(GRACE, CHUNK):
            try:
                await self._settle(one)
            except Conflict as error:
                log.warning("flow %d has no service: %s", one.flow_id, error)
            await self.store.settled(one)

    async def _settle(self, one: Unsettled) -> None:
        flow = await self.flows.get(one.tenant, one.flow_id)
        if flow is None or not await self.deploying.restore(flow):
            await self.entities.remove_service(one.tenant, one.flow_id)
