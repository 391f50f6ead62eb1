"""Changes on the bus for live updates."""

import asyncio
import logging
from uuid import uuid4

from nats.aio.msg import Msg

from libs.common.bus import BatchConsumer, Bus, event_tenant
from libs.common.bus.publishing import acknowledge
from libs.common.bus.subjects import event_filters
from libs.common.changes import (
    DEVICE_STATE_SUBJECTS,
    REPORT_SUBJECTS,
    EntityChange,
    read_reported_change,
    read_state_change,
)
from libs.common.decoding import JSON_ERRORS
from libs.common.telemetry.tracing import read_trace, trace_batch
from services.management.live.hub import Hub
from services.management.live.sockets import create_pause
from services.management.live.subscriber import MAX_WAITING_FRAMES

log = logging.getLogger(__name__)

MAX_CONCURRENT_TENANTS = 16
"""Tenants whose changes are distributed concurrently, in slices of the event loop's time."""


class LiveEventConsumer:
    """The consumer that pushes every new change to sockets of this replica.

    The bus delivers only the events of tenants with a socket, because reading an event costs more
    than ignoring it.
    """

    def __init__(self, bus: Bus, hub: Hub) -> None:
        self._bus = bus
        self.hub = hub
        self._delivered: frozenset[str] = frozenset()
        """Tenants whose events the bus delivers to this replica."""
        self._updating: asyncio.Task[None] | None = None
        self.consumer = BatchConsumer(
            bus=bus,
            stream="EVENTS",
            durable=f"live-{uuid4().hex}",
            handle=self.push,
            batch=500,
            concurrency=MAX_CONCURRENT_TENANTS,
            lane=event_tenant,
            subjects=self._subjects_to_deliver,
            ephemeral=True,
        )

    async def wait_until_subscribed(self, tenant: str) -> None:
        """Wait until the bus delivers the events of a tenant that has a socket."""
        while tenant not in self._delivered:
            if self._updating is None:
                self._updating = asyncio.ensure_future(self._update_consumer())
            await asyncio.shield(self._updating)

    async def push(self, messages: list[Msg]) -> None:
        """Push and acknowledge events of a tenant."""
        with trace_batch("live batch", [read_trace(message.headers) for message in messages]):
            if self.hub.has_socket(event_tenant(messages[0])):
                await _push_to_hub(self.hub, messages)
            await acknowledge(self._bus.client, messages)

    def _subjects_to_deliver(self) -> tuple[str, ...]:
        tenants = self.hub.list_tenants()
        self._delivered &= tenants
        return event_filters(tenants, (*REPORT_SUBJECTS, *DEVICE_STATE_SUBJECTS))

    async def _update_consumer(self) -> None:
        tenants = self.hub.list_tenants()
        try:
            if self._bus.is_connected:
                await self.consumer.apply_subjects()
        finally:
            self._delivered |= tenants
            self._updating = None


async def _push_to_hub(hub: Hub, messages: list[Msg]) -> None:
    """Push changed values to sockets, and ids of changed entities to MQTT pages.

    Changes of more than `MAX_WAITING_FRAMES` messages are merged, so that only the latest values
    are pushed.
    """
    pause = create_pause()
    changes: list[EntityChange] = []
    for message in messages:
        try:
            if message.subject.endswith((".reported", ".event")):
                changes.append(read_reported_change(message.data))
            else:
                hub.mqtt_publisher.collect(read_state_change(message.subject, message.data))
        except JSON_ERRORS as error:
            log.warning("%s cannot be decoded: %s", message.subject, error)
        if changes and len(messages) <= MAX_WAITING_FRAMES:
            await hub.push(changes, pause)
            changes.clear()
        await pause()
    if changes:
        await hub.push(changes, pause)
