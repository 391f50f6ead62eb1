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
from services.workflow.nodes.simple_mqtt import SimpleMqtt, SimpleMqttParameters
from services.workflow.runs.records import Deployed
from services.workflow.triggers.listeners.index import ListenerIndex
from services.workflow.triggers.store import DeployedFlows, read_deployed
from services.workflow.triggers.topics.index import TopicIndex

AWAIT_MS = 500
"""How long the server keeps a question for changes open."""
BACKOFF = 0.5
"""Seconds between attempts while the store does not answer."""

log = logging.getLogger(__name__)


class FollowedIndex(Deployments):
    """Indexes of entities and of topics that are in step while `ready` is set."""

    def __init__(self, deployed: DeployedFlows) -> None:
        self.index = ListenerIndex()
        self.topics = TopicIndex()
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
        found = [*await self._deployed.of(EventListener.name)]
        found += await self._deployed.of(SimpleMqtt.name)
        flows = {one.flow_id: one for one in found}
        for flow_id in (self.index.flow_ids() | self.topics.flow_ids()) - flows.keys():
            self._take(flow_id, None)
        for flow_id, flow in flows.items():
            self._take(flow_id, flow)

    def _change(self, change: dict[str, Any]) -> None:
        document = change.get("fullDocument")
        if "documentKey" in change:
            flow = None if document is None else read_deployed(document)
            self._take(change["documentKey"]["_id"], flow)

    def _take(self, flow_id: int, flow: Deployed | None) -> None:
        self.index.remove(flow_id)
        self.topics.remove(flow_id)
        try:
            if flow is not None and flow.component == EventListener.name:
                keys = read(EventListenerParameters, flow.parameters).entity_keys()
                self.index.put(flow, keys)
            elif flow is not None and flow.component == SimpleMqtt.name:
                self.topics.put(flow, read(SimpleMqttParameters, flow.parameters))
        except msgspec.ValidationError as error:
            log.warning("flow %d cannot listen: %s", flow_id, error)
