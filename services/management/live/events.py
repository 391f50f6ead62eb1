"""Changes on the bus for live updates."""

import logging
from uuid import uuid4

from nats.aio.msg import Msg

from libs.common.bus import BatchConsumer, Bus, event_tenant
from libs.common.bus.publishing import acknowledge
from libs.common.changes import (
    KNOWN_SUBJECTS,
    SUBJECTS,
    EntityChange,
    read_change,
    read_state_change,
)
from libs.common.decoding import INVALID_JSON
from libs.common.telemetry.tracing import read_trace, trace_batch
from services.management.live.hub import Hub
from services.management.live.sockets import slices
from services.management.live.subscriber import MOST_WAITING

log = logging.getLogger(__name__)

TENANTS = 16
"""Tenants whose changes are distributed concurrently, in slices of the event loop's time."""


def create_consumer(bus: Bus, hub: Hub) -> BatchConsumer:
    """Return the consumer that pushes every new change to sockets of this replica."""

    async def push(messages: list[Msg]) -> None:
        with trace_batch("live batch", [read_trace(message.headers) for message in messages]):
            if hub.listens(event_tenant(messages[0])):
                await _push(hub, messages)
            await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream="EVENTS",
        durable=f"live-{uuid4().hex}",
        handle=push,
        batch=500,
        concurrency=TENANTS,
        lane=event_tenant,
        subjects=(*SUBJECTS, *KNOWN_SUBJECTS),
        fleeting=True,
    )


async def _push(hub: Hub, messages: list[Msg]) -> None:
    """Push changed values to sockets, and ids of changed entities to MQTT pages.

    Changes that arrive faster than they are pushed are merged, so that only the latest values are
    pushed.
    """
    pause = slices()
    changes: list[EntityChange] = []
    for message in messages:
        try:
            if message.subject.endswith((".reported", ".event")):
                changes.append(read_change(message.data))
            else:
                hub.exchange.publish(read_state_change(message.subject, message.data))
        except INVALID_JSON as error:
            log.warning("%s cannot be decoded: %s", message.subject, error)
        if changes and len(messages) <= MOST_WAITING:
            await hub.push(changes, pause)
            changes.clear()
        await pause()
    if changes:
        await hub.push(changes, pause)
