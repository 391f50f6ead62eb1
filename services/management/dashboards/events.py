"""Deletes canvases of deleted devices and home dashboards of deleted users, on events."""

from collections import defaultdict

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import EVENTS, BatchConsumer, Bus, acknowledge, event_tenant
from libs.common.contracts.events import AccountChanged
from services.management.dashboards.store import CanvasStore, DashboardStore

CONSUMER_NAME = "management"
DELETION_SUBJECTS = ("event.*.device.*.deleted", "event.*.auth.user.deleted")
EVENTS_PER_BATCH = 200
MAX_CONCURRENT_TENANTS = 4
"""Tenants whose events are processed concurrently."""


def create_deletion_consumer(
    bus: Bus, dashboards: DashboardStore, canvases: CanvasStore
) -> BatchConsumer:
    """Return the consumer that deletes canvases of deleted devices and homes of deleted users."""

    async def handle(messages: list[Msg]) -> None:
        tenant = event_tenant(messages[0])
        deleted: dict[str, list[int]] = defaultdict(list)
        for message in messages:
            _, _, kind, name, _ = message.subject.split(".")
            if kind != "device":
                name = msgspec.json.decode(message.data, type=AccountChanged).object.id
            deleted[kind].append(int(name))
        if devices := deleted.get("device"):
            await canvases.remove_device_canvases(tenant, devices)
        if users := deleted.get("auth"):
            await dashboards.remove_homes(tenant, users)
        await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable=CONSUMER_NAME,
        subjects=DELETION_SUBJECTS,
        handle=handle,
        lane=event_tenant,
        batch=EVENTS_PER_BATCH,
        concurrency=MAX_CONCURRENT_TENANTS,
    )
