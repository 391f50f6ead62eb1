"""What the bus says of alarms: users who want to be told get a notice."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import EVENTS, BatchConsumer, Bus, event_tenant
from libs.common.bus.publishing import acknowledge
from libs.common.changes import ALARMS
from libs.common.clock import to_ms
from libs.common.contracts.events import AlarmChanged
from libs.common.decoding import INVALID_JSON, copy_fields
from libs.common.telemetry.tracing import read_trace, trace_batch
from services.workflow.notifications.model import Notice, Subscriber, Told, due_time
from services.workflow.notifications.store import NotificationStore

DURABLE = "alarm-notifications"
BATCH = 200
"""Events that are taken at a time; other replicas take the next ones."""
TENANTS = 4
"""Tenants whose events are handled at the same time."""
WRITTEN = 1000
"""Notices from which on those of further events are written by another operation."""

log = logging.getLogger(__name__)
_read = msgspec.json.Decoder(AlarmChanged).decode


async def store_notices(store: NotificationStore, tenant: str, bodies: Iterable[bytes]) -> None:
    """Store a notice of each alarm event for each user and channel that wants it. Repeatable.

    The notices of at least one event are written together, those of several while they are few.
    """
    subscribers = await store.of_tenant(tenant)
    notices: list[Notice] = []
    for body in bodies:
        try:
            event = _read(body)
        except INVALID_JSON as error:
            log.warning("an event of an alarm is not readable: %s", error)
            continue
        now = datetime.now(UTC)
        told = _told(event)
        for one in subscribers:
            if wants(one, event):
                notices.extend(_notices(one, event.event_id, told, now))
        if len(notices) >= WRITTEN:
            await store.add(notices)
            notices = []
    if notices:
        await store.add(notices)


def wants(subscriber: Subscriber, event: AlarmChanged) -> bool:
    """Whether a user wants to be told of an event; what the user sees is looked at later."""
    settings, device = subscriber.settings, event.device
    if event.severity not in settings.severities or event.change not in settings.changes:
        return False
    named = settings.device_ids or settings.group_ids or settings.products
    return not named or (
        device.device_id in settings.device_ids
        or device.group_id in settings.group_ids
        or device.model in settings.products
    )


def _told(event: AlarmChanged) -> Told:
    device = event.device
    return copy_fields(
        Told, event, device_id=device.device_id, device_name=device.name or device.sn
    )


def _notices(subscriber: Subscriber, event_id: str, told: Told, now: datetime) -> Iterable[Notice]:
    due = to_ms(due_time(subscriber.settings, now))
    for channel in subscriber.settings.channels:
        trouble = subscriber.trouble.get(channel)
        yield Notice(
            id=f"{event_id}.{subscriber.id}.{channel}",
            tenant=subscriber.tenant,
            user=subscriber.id,
            channel=channel,
            due=max(due, trouble.until if trouble else 0),
            at=now,
            told=told,
        )


def consume_alarms(bus: Bus, store: NotificationStore) -> BatchConsumer:
    """The consumer that all replicas share; an event is acknowledged when its notices wait."""

    async def handle(messages: list[Msg]) -> None:
        with trace_batch(
            "notifications batch", [read_trace(message.headers) for message in messages]
        ):
            bodies = [message.data for message in messages]
            await store_notices(store, event_tenant(messages[0]), bodies)
            await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable=DURABLE,
        handle=handle,
        lane=event_tenant,
        batch=BATCH,
        concurrency=TENANTS,
        subject=ALARMS,
        from_now=True,
    )
