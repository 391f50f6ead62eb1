"""The flows that run, and a replica's index of those that listen.

`deployments`, written with the flow in one transaction: `{_id: flow id, tenant, component,
deployed}`; `deployed` is JSON, as parameters have names that a document may not have.
`deployment_changes`: `{flow, at}`, one for each change, kept for an hour, by which replicas learn
of it.

The index asks twice a second what has changed. A change stream would tell sooner, and has MongoDB
read all that anybody writes, runs and history included (as for rules of alarms in `device`). Now
and then it reads all of them, for what a replica of an earlier version has changed, or a tenant
that moved in.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from libs.common.contracts.limits import Limits
from libs.common.errors import TooManyRequests
from libs.common.limits.tenants import count_limited
from libs.common.store.mongo import Database, Session, StoreError, create_missing
from services.workflow.flows.model import Deployments
from services.workflow.nodes.event_listener import EventListener, EventListenerParameters
from services.workflow.nodes.parameters import read
from services.workflow.nodes.simple_mqtt import SimpleMqtt, SimpleMqttParameters
from services.workflow.runs.model import Deployed
from services.workflow.triggers.listener_index import ListenerIndex
from services.workflow.triggers.topics import TopicIndex

CHANGES = "deployment_changes"
KEPT = 3600
"""Seconds."""
_decode = msgspec.json.Decoder(Deployed).decode
log = logging.getLogger(__name__)

PERIOD = 0.5
"""Seconds between two questions for changes."""
OVERLAP = timedelta(seconds=10)
"""What is asked for again: clocks differ, and transactions take their time."""
RELOAD = 30.0
"""Seconds after which all are read again."""
BACKOFF = 0.5
"""Seconds between attempts while the store does not answer."""


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

    async def beginning_with(self, *components: str) -> AsyncIterator[Deployed]:
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


class DeployedFlowIndex(Deployments):
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
        self._update(flow_id, await self._deployed.find(tenant, flow_id))

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
                        self._update(flow_id, flow)

    async def _load(self) -> None:
        """Read all of them, and forget those that are gone."""
        gone = self.index.flow_ids() | self.topics.flow_ids()
        async for flow in self._deployed.beginning_with(EventListener.name, SimpleMqtt.name):
            gone.discard(flow.flow_id)
            self._update(flow.flow_id, flow)
        for flow_id in gone:
            self._update(flow_id, None)

    def _update(self, flow_id: int, flow: Deployed | None) -> None:
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
