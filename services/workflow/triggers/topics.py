"""Starts runs for messages of external MQTT clients.

Replicas share the messages of the bus. Messages are not stored: they start the flows that listen
when they arrive. Flows are looked up level by level of the topic.
"""

import asyncio
import base64
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from uuid import uuid4

from nats.aio.msg import Msg

from libs.common.bus import Bus
from libs.common.bus.subjects import EXTERNAL_TOPICS, split_external_subject
from libs.common.errors import ThingwayError
from libs.common.scheduling import Caps, FairScheduler, LaneFull
from libs.common.store.mongo import StoreError
from services.workflow.engine.runner import Engine, FlowStart, record_and_execute
from services.workflow.nodes.triggers import SimpleMqttParameters
from services.workflow.runs.model import Cause, DeployedFlow

TopicFlow = tuple[DeployedFlow, SimpleMqttParameters]
log = logging.getLogger(__name__)

MAX_WAITING_MESSAGES, MAX_WAITING_BYTES = 10_000, 32 * 1024**2
"""Maximum waiting messages of a tenant, and their bytes; further ones are dropped."""
MAX_BYTES, GUARANTEED_MESSAGES = 128 * 1024**2, 100
"""From `MAX_BYTES` waiting bytes on, each tenant may have only `GUARANTEED_MESSAGES` waiting."""
MESSAGE_OVERHEAD_BYTES = 512
"""Bytes of memory per message in addition to its payload."""
MAX_MESSAGE_BYTES = 256 * 1024
"""Maximum bytes of a message; larger ones are dropped."""
MAX_CONCURRENT, MAX_CONCURRENT_PER_TENANT = 256, 16
"""Maximum messages handled concurrently, in total and per tenant."""


class _TopicLevel:
    """A tree node for topic filters with the same first levels, and their flows."""

    def __init__(self) -> None:
        self.below: dict[str, _TopicLevel] = {}
        self.flows: dict[int, TopicFlow] = {}
        """Flows whose filter ends at this level."""

    def find_flows(self, levels: Sequence[str]) -> Iterator[TopicFlow]:
        """Yield the flows whose filter matches the rest of a topic (MQTT 3.1.1, 4.7)."""
        if "#" in self.below:
            yield from self.below["#"].flows.values()
        if not levels:
            yield from self.flows.values()
            return
        for name in (levels[0], "+"):
            if name in self.below:
                yield from self.below[name].find_flows(levels[1:])


class TopicIndex:
    """The flows of all tenants that start with a message."""

    def __init__(self) -> None:
        self._flows: dict[int, list[str]] = {}
        """Tenant and filter levels by flow."""
        self._tenants = _TopicLevel()

    def list_flow_ids(self) -> set[int]:
        """Return the ids of all flows in the index."""
        return set(self._flows)

    def put(self, flow: DeployedFlow, parameters: SimpleMqttParameters) -> None:
        """Add or replace a flow."""
        self.remove(flow.flow_id)
        names = self._flows[flow.flow_id] = [
            flow.tenant,
            *parameters.subscription_topic.split("/"),
        ]
        level = self._tenants
        for name in names:
            level = level.below.setdefault(name, _TopicLevel())
        level.flows[flow.flow_id] = flow, parameters

    def remove(self, flow_id: int) -> None:
        """Remove a flow if it is in the index."""
        names = self._flows.pop(flow_id, [])
        path = [self._tenants]
        for name in names:
            path.append(path[-1].below[name])
        path[-1].flows.pop(flow_id, None)
        while names and not (path[-1].flows or path[-1].below):
            path.pop()
            del path[-1].below[names.pop()]

    def find_flows(self, tenant: str, topic: str) -> list[TopicFlow]:
        """Return the flows of a tenant that listen to a topic."""
        level = self._tenants.below.get(tenant)
        return [] if level is None else list(level.find_flows(topic.split("/")))


class TopicListener:
    """Starts runs for messages, fairly by tenant."""

    def __init__(self, bus: Bus, index: TopicIndex, ready: asyncio.Event, engine: Engine) -> None:
        """Wait for `ready`, which is set while the index is in step with flows."""
        self._bus = bus
        self._index = index
        self._ready = ready
        self._engine = engine
        self._scheduler = FairScheduler(
            "messages for flows",
            MAX_CONCURRENT,
            items=MAX_WAITING_MESSAGES,
            size=MAX_WAITING_BYTES,
            caps=lambda _: Caps(MAX_CONCURRENT_PER_TENANT, sub=MAX_CONCURRENT_PER_TENANT),
        )

    async def run(self) -> None:
        """Subscribe to messages."""
        await self._bus.client.subscribe(
            EXTERNAL_TOPICS,
            queue="workflow",
            cb=self._receive,
            pending_msgs_limit=MAX_WAITING_MESSAGES,
            pending_bytes_limit=MAX_WAITING_BYTES,
        )

    async def _receive(self, message: Msg) -> None:
        tenant = split_external_subject(message.subject)[0].rpartition("@")[2]
        full = (
            self._scheduler.size >= MAX_BYTES
            and self._scheduler.waiting(tenant) >= GUARANTEED_MESSAGES
        )
        if full or len(message.data) > MAX_MESSAGE_BYTES:
            self._scheduler.count_overflow(tenant)
            return
        size = len(message.data) + MESSAGE_OVERHEAD_BYTES
        with suppress(LaneFull):
            self._scheduler.start(tenant, partial(self._start_runs, tenant, message), size=size)

    async def _start_runs(self, tenant: str, message: Msg) -> None:
        await self._ready.wait()
        try:
            executed = await record_and_execute(self._engine, self._build_starts(tenant, message))
            for start in executed.without_room:
                self._engine.count_rejected(start)
        except (ThingwayError, StoreError) as error:
            log.warning("an MQTT message of tenant %s started no flow: %s", tenant, error)

    def _build_starts(self, tenant: str, message: Msg) -> Iterator[FlowStart]:
        _, topic = split_external_subject(message.subject)
        for flow, parameters in self._index.find_flows(tenant, topic):
            if parameters.encoding == "Base64":
                payload = base64.b64encode(message.data).decode()
            else:
                payload = message.data.decode(errors="replace")
            cause = Cause(kind="MQTT", key=f"m-{uuid4().hex}")
            yield FlowStart(flow, {"topic": topic, "payload": payload}, cause)
