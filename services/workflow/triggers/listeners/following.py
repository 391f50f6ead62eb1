"""Keeps a replica's index of listeners in step with the flows that run.

It follows the change stream of `deployments`: what any replica enables or disables is in
force here milliseconds later, and nothing is asked for while nothing changes.
"""

import asyncio
import logging
from typing import Any

import msgspec

from libs.common.store.mongo import StoreError
from services.workflow.flows.model import Deployments
from services.workflow.nodes.event_listener import EventListener, EventListenerParameters
from services.workflow.nodes.reading import read
from services.workflow.runs.records import Deployed
from services.workflow.triggers.listeners.index import ListenerIndex
from services.workflow.triggers.store import DeployedFlows, read_deployed

AWAIT_MS = 500
"""How long the server keeps a question for changes open."""
BACKOFF = 0.5
"""Seconds between attempts while the store does not answer."""

log = logging.getLogger(__name__)


class FollowedIndex(Deployments):
    """An index that is in step while `ready` is set."""

    def __init__(self, deployed: DeployedFlows) -> None:
        self.index = ListenerIndex()
        self.ready = asyncio.Event()
        self._deployed = deployed

    async def changed(self, tenant: str, flow_id: int) -> None:
        """Take a change that this replica made at once."""
        self._take(flow_id, await self._deployed.find(tenant, flow_id))

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            try:
                await self._follow()
            except StoreError as error:
                log.warning("listeners are not in step: %s", error)
            finally:
                self.ready.clear()
            await asyncio.sleep(BACKOFF)

    async def _follow(self) -> None:
        stream = await self._deployed.collection.watch(max_await_time_ms=AWAIT_MS)
        async with stream:
            await stream.try_next()  # opens it; what it may bring is read below
            await self._load()
            self.ready.set()
            async for change in stream:
                self._change(change)

    async def _load(self) -> None:
        """Read all of them, and forget those that are gone."""
        flows = {one.flow_id: one for one in await self._deployed.of(EventListener.name)}
        for flow_id in self.index.flow_ids() - flows.keys():
            self.index.remove(flow_id)
        for flow_id, flow in flows.items():
            self._take(flow_id, flow)

    def _change(self, change: dict[str, Any]) -> None:
        document = change.get("fullDocument")
        if "documentKey" in change:
            flow = None if document is None else read_deployed(document)
            self._take(change["documentKey"]["_id"], flow)

    def _take(self, flow_id: int, flow: Deployed | None) -> None:
        if flow is None or flow.component != EventListener.name:
            self.index.remove(flow_id)
            return
        try:
            parameters = read(EventListenerParameters, flow.parameters)
        except msgspec.ValidationError as error:
            log.warning("flow %d cannot listen: %s", flow_id, error)
            self.index.remove(flow_id)
        else:
            self.index.put(flow, parameters.entity_keys())
