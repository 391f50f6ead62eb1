"""Stores notices of alarm events for the users who want them."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import EVENTS, BatchConsumer, Bus, event_tenant
from libs.common.bus.publishing import acknowledge
from libs.common.changes import ALARM_SUBJECTS
from libs.common.clock import to_ms
from libs.common.contracts.events import AlarmChanged
from libs.common.decoding import JSON_ERRORS, copy_fields
from libs.common.telemetry.tracing import read_trace, trace_batch
from services.workflow.notifications.store import (
    AlarmSummary,
    Notice,
    NotificationStore,
    Subscriber,
    compute_due_time,
)

EVENTS_PER_BATCH = 200
"""Maximum events per batch; a batch has events of one tenant."""
MAX_CONCURRENT_TENANTS = 4
"""Maximum tenants whose events are handled concurrently."""
NOTICES_PER_WRITE = 1000
"""Notices after which a write starts."""

log = logging.getLogger(__name__)
_decode_alarm_event = msgspec.json.Decoder(AlarmChanged).decode
MILLISECOND = timedelta(milliseconds=1)
"""Precision of times in MongoDB."""


async def store_notices(store: NotificationStore, tenant: str, bodies: Iterable[bytes]) -> None:
    """Store notices of alarm events for each matching user and channel.

    An event that NATS sends again after its notice was delivered leads to a second delivery.
    Notices of several events are written together, as soon as there are `NOTICES_PER_WRITE`.
    """
    subscribers = await store.list_enabled(tenant)
    notices: list[Notice] = []
    now = datetime.now(UTC)
    for body in bodies:
        try:
            event = _decode_alarm_event(body)
        except JSON_ERRORS as error:
            log.warning("an alarm event cannot be decoded: %s", error)
            continue
        now = max(datetime.now(UTC), now + MILLISECOND)  # keeps the order of the events
        alarm = _build_alarm_summary(event)
        for subscriber in subscribers:
            if matches_settings(subscriber, event):
                notices.extend(_build_notices(subscriber, event.event_id, alarm, now))
        if len(notices) >= NOTICES_PER_WRITE:
            await store.add_notices(notices)
            notices = []
    if notices:
        await store.add_notices(notices)


def matches_settings(subscriber: Subscriber, event: AlarmChanged) -> bool:
    """Return whether a user's settings match an event; grants are checked later."""
    settings, device = subscriber.settings, event.device
    if event.severity not in settings.severities or event.change not in settings.changes:
        return False
    has_selection = settings.device_ids or settings.group_ids or settings.products
    return not has_selection or (
        device.device_id in settings.device_ids
        or device.group_id in settings.group_ids
        or device.model in settings.products
    )


def _build_alarm_summary(event: AlarmChanged) -> AlarmSummary:
    device = event.device
    return copy_fields(
        AlarmSummary, event, device_id=device.device_id, device_name=device.name or device.sn
    )


def _build_notices(
    subscriber: Subscriber, event_id: str, alarm: AlarmSummary, now: datetime
) -> Iterable[Notice]:
    due = to_ms(compute_due_time(subscriber.settings, now))
    for channel in subscriber.settings.channels:
        trouble = subscriber.trouble.get(channel)
        yield Notice(
            id=f"{event_id}.{subscriber.id}.{channel}",
            tenant=subscriber.tenant,
            user=subscriber.id,
            channel=channel,
            due=max(due, trouble.until if trouble else 0),
            at=now,
            alarm=alarm,
        )


def create_alarm_consumer(bus: Bus, store: NotificationStore) -> BatchConsumer:
    """Return the consumer of alarm events.

    An event is acknowledged after its notices are stored.
    """

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
        durable="alarm-notifications",
        handle=handle,
        lane=event_tenant,
        batch=EVENTS_PER_BATCH,
        concurrency=MAX_CONCURRENT_TENANTS,
        subject=ALARM_SUBJECTS,
        from_now=True,
    )
