"""Deployed flows, and a replica's index of listening flows.

`deployments`, written in the transaction of the flow: `{_id: flow id, tenant, component,
deployed}`. `deployed` is JSON, because parameters may have names that documents do not allow.
`deployment_changes`: `{flow, at}`, one per change, kept for an hour.

Replicas wake each other to read changes. A change stream would make MongoDB read all writes,
including runs and history. The index also reloads all deployments periodically, for changes by
replicas of an earlier version, and for restored tenants.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from libs.common.bus import Wakeups
from libs.common.contracts.limits import Limits
from libs.common.errors import TooManyRequests
from libs.common.jobs import wait_for_event
from libs.common.limits.tenants import count_rejection
from libs.common.scheduling.turns import IDLE_PERIOD_SECONDS
from libs.common.store.mongo import Database, Session, StoreError
from services.workflow.flows.model import DeploymentObserver
from services.workflow.nodes.parameters import convert_parameters
from services.workflow.nodes.triggers import (
    EventListener,
    EventListenerParameters,
    SimpleMqtt,
    SimpleMqttParameters,
)
from services.workflow.runs.model import DeployedFlow
from services.workflow.triggers.listener_index import ListenerIndex
from services.workflow.triggers.topics import TopicIndex

CHANGES_COLLECTION = "deployment_changes"
CHANGES_RETENTION_SECONDS = 3600
"""Seconds for which changes are stored."""
_decode_deployed = msgspec.json.Decoder(DeployedFlow).decode
log = logging.getLogger(__name__)

FLOWS_TOPIC = "flows"
"""Topic of `Wakeups`: a flow was deployed or undeployed."""
CHANGES_OVERLAP = timedelta(seconds=10)
"""Overlap of reads, because clocks differ and transactions take time."""
RELOAD_SECONDS = 30.0
"""Seconds between two reloads."""
RETRY_SECONDS = 0.5
"""Seconds between attempts while the store is unavailable."""


class DeployedFlowStore(DeploymentObserver):
    """The collections `deployments` and `deployment_changes`."""

    def __init__(self, database: Database) -> None:
        self._deployments = database["deployments"]
        self._changes = database[CHANGES_COLLECTION]

    async def write_deployment(
        self, tenant: str, flow_id: int, deployed: DeployedFlow | None, session: Session
    ) -> None:
        """Store a deployed flow, or delete an undeployed one."""
        await self._changes.insert_one({"flow": flow_id, "at": datetime.now(UTC)}, session=session)
        key = {"_id": flow_id, "tenant": tenant}
        if deployed is None:
            await self._deployments.delete_one(key, session=session)
            return
        fields = {"component": deployed.component, "deployed": msgspec.json.encode(deployed)}
        await self._deployments.replace_one(key, key | fields, upsert=True, session=session)

    async def find(self, tenant: str, flow_id: int) -> DeployedFlow | None:
        """Return a deployed flow."""
        document = await self._deployments.find_one({"_id": flow_id, "tenant": tenant})
        return None if document is None else _decode_document(document)

    async def iterate_by_component(self, *components: str) -> AsyncIterator[DeployedFlow]:
        """Yield deployed flows of all tenants with one of the entry types."""
        async for document in self._deployments.find({"component": {"$in": components}}):
            yield _decode_document(document)

    async def list_changed(self, time: datetime) -> dict[int, DeployedFlow | None]:
        """Return flows changed since a time, by flow id; None for undeployed ones."""
        ids = await self._changes.distinct("flow", {"at": {"$gte": time}})
        if not ids:
            return {}
        cursor = self._deployments.find({"_id": {"$in": ids}})
        running = {document["_id"]: _decode_document(document) async for document in cursor}
        return {flow_id: running.get(flow_id) for flow_id in ids}


def _decode_document(document: dict[str, Any]) -> DeployedFlow:
    return _decode_deployed(document["deployed"])


class DeployedFlowIndex(DeploymentObserver):
    """Indexes of listening flows by entity and topic; up to date while `ready` is set."""

    def __init__(
        self, deployed: DeployedFlowStore, limits: Callable[[str], Limits], wakeups: Wakeups
    ) -> None:
        """Use `limits` to get the limits of a tenant."""
        self.index = ListenerIndex()
        self.topics = TopicIndex()
        self.ready = asyncio.Event()
        self._deployed = deployed
        self._limits = limits
        self._wakeups, self._wake = wakeups, wakeups.create_event(FLOWS_TOPIC)
        self._local_changes = 0
        """Number of changes by this replica."""

    async def write_deployment(
        self, tenant: str, flow_id: int, deployed: DeployedFlow | None, session: Session
    ) -> None:
        """Raise `TooManyRequests` if too many flows listen to a new key of the flow."""
        if deployed is None or deployed.component != EventListener.name:
            return
        maximum = self._limits(tenant).key_flows
        key = self.index.find_crowded_key(deployed, list_listened_keys(deployed), maximum)
        if key is not None:
            count_rejection("keyFlows", tenant)
            text = f"keyFlows: at most {maximum} flows can listen to {key}"
            raise TooManyRequests(text, retry_after=60.0)

    async def handle_stored(self, tenant: str, flow_id: int) -> None:
        """Apply a change of this replica immediately."""
        self._local_changes += 1
        self._wakeups.notify(FLOWS_TOPIC)
        self._update_flow(flow_id, await self._deployed.find(tenant, flow_id))

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            try:
                await self._follow()
            except StoreError as error:
                log.warning("the index of listening flows is outdated; retrying: %s", error)
            finally:
                self.ready.clear()
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        while True:
            read_at, until = datetime.now(UTC), time.monotonic() + RELOAD_SECONDS
            await self._reload_all()
            self.ready.set()
            while time.monotonic() < until:
                await wait_for_event(self._wake, IDLE_PERIOD_SECONDS)
                self._wake.clear()
                since, read_at, local = (
                    read_at - CHANGES_OVERLAP,
                    datetime.now(UTC),
                    self._local_changes,
                )
                changes = await self._deployed.list_changed(since)
                if (
                    local == self._local_changes
                ):  # otherwise they may be outdated, and are polled again
                    for flow_id, flow in changes.items():
                        self._update_flow(flow_id, flow)

    async def _reload_all(self) -> None:
        """Load all deployments and remove missing flows."""
        missing = self.index.list_flow_ids() | self.topics.list_flow_ids()
        async for flow in self._deployed.iterate_by_component(EventListener.name, SimpleMqtt.name):
            missing.discard(flow.flow_id)
            self._update_flow(flow.flow_id, flow)
        for flow_id in missing:
            self._update_flow(flow_id, None)

    def _update_flow(self, flow_id: int, flow: DeployedFlow | None) -> None:
        self.index.remove(flow_id)
        self.topics.remove(flow_id)
        try:
            if flow is not None and flow.component == EventListener.name:
                self.index.put(flow, list_listened_keys(flow))
            elif flow is not None and flow.component == SimpleMqtt.name:
                self.topics.put(flow, convert_parameters(SimpleMqttParameters, flow.parameters))
        except msgspec.ValidationError as error:
            log.warning("flow %d cannot listen, as its parameters are invalid: %s", flow_id, error)


def list_listened_keys(flow: DeployedFlow) -> list[str]:
    """Return the entity keys that a flow listens to; raise `ValidationError`."""
    return convert_parameters(EventListenerParameters, flow.parameters).list_entity_keys()
