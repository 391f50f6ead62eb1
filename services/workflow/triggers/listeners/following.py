"""Keeps a replica's index of listeners in step with the flows that run.

It asks twice a second what has changed. A change stream would tell sooner, and has MongoDB read all
that anybody writes, runs and history included (`device.alarms.following`). Now and then it reads
all of them, for what a replica of an earlier version has changed, or a tenant that moved in.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from libs.common.contracts.limits import Limits
from libs.common.errors import TooManyRequests
from libs.common.limits.tenants import count_limited
from libs.common.store.mongo import Session, StoreError
from services.workflow.flows.model import Deployments
from services.workflow.nodes.event_listener import EventListener, EventListenerParameters
from services.workflow.nodes.reading import read
from services.workflow.nodes.simple_mqtt import SimpleMqtt, SimpleMqttParameters
from services.workflow.runs.records import Deployed
from services.workflow.triggers.listeners.index import ListenerIndex
from services.workflow.triggers.store import DeployedFlows
from services.workflow.triggers.topics.index import TopicIndex

PERIOD = 0.5
"""Seconds between two questions for changes."""
OVERLAP = timedelta(seconds=10)
"""What is asked for again: clocks differ, and transactions take their time."""
RELOAD = 30.0
"""Seconds after which all are read again."""
BACKOFF = 0.5
"""Seconds between attempts while the store does not answer."""

log = logging.getLogger(__name__)


class FollowedIndex(Deployments):
    """Indexes of entities and of topics that are in step while `ready` is set."""

    def __init__(self, deployed: DeployedFlows, limits: Callable[[str], Limits]) -> None:
        """`limits` gives the limits of a tenant."""
        self.index = ListenerIndex()
        self.topics = TopicIndex()
        self.ready = asyncio.Event()
        self._deployed = deployed
        self._limits = limits
        self._own = 0
        """Changes that this replica made."""

    async def apply(
        self, tenant: str, flow_id: int, deployed: Deployed | None, session: Session
    ) -> None:
        """Raise `TooManyRequests` if too many flows listen to a key that is new for this flow."""
        if deployed is None or deployed.component != EventListener.name:
            return
        most = self._limits(tenant).key_flows
        key = self.index.crowded_key(deployed, keys_of(deployed), most)
        if key is not None:
            count_limited("keyFlows", tenant)
            text = f"entities: {most} flows listen to {key}, and no more may"
            raise TooManyRequests(text, retry_after=60.0)

    async def changed(self, tenant: str, flow_id: int) -> None:
        """Take a change that this replica made at once."""
        self._own += 1
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
        while True:
            asked, until = datetime.now(UTC), time.monotonic() + RELOAD
            await self._load()
            self.ready.set()
            while time.monotonic() < until:
                await asyncio.sleep(PERIOD)
                since, asked, own = asked - OVERLAP, datetime.now(UTC), self._own
                changes = await self._deployed.changed_since(since)
                if own == self._own:  # else they may be older, and come again
                    for flow_id, flow in changes.items():
                        self._take(flow_id, flow)

    async def _load(self) -> None:
        """Read all of them, and forget those that are gone."""
        gone = self.index.flow_ids() | self.topics.flow_ids()
        async for flow in self._deployed.of(EventListener.name, SimpleMqtt.name):
            gone.discard(flow.flow_id)
            self._take(flow.flow_id, flow)
        for flow_id in gone:
            self._take(flow_id, None)

    def _take(self, flow_id: int, flow: Deployed | None) -> None:
        self.index.remove(flow_id)
        self.topics.remove(flow_id)
        try:
            if flow is not None and flow.component == EventListener.name:
                self.index.put(flow, keys_of(flow))
            elif flow is not None and flow.component == SimpleMqtt.name:
                self.topics.put(flow, read(SimpleMqttParameters, flow.parameters))
        except msgspec.ValidationError as error:
            log.warning("flow %d cannot listen: %s", flow_id, error)


def keys_of(flow: Deployed) -> list[str]:
    """Return the keys of the entities that a flow listens to; raise `ValidationError`."""
    return read(EventListenerParameters, flow.parameters).entity_keys()
