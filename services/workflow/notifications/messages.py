"""What the bus says of alarms: users who want to be told get a notice."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import EVENTS, BatchConsumer, Bus
from libs.common.bus.wire import acknowledge
from libs.common.changes import ALARMS
from libs.common.clock import to_ms
from libs.common.contracts.events import AlarmChanged
from libs.common.decoding import INVALID_JSON
from libs.common.telemetry.tracing import batch, trace_of
from services.workflow.notifications import timing
from services.workflow.notifications.model import Notice, Subscriber, Told
from services.workflow.notifications.store import NotificationStore

DURABLE = "alarm-notifications"
BATCH = 200
"""Events that are taken at a time; other replicas take the next ones."""

log = logging.getLogger(__name__)
_read = msgspec.json.Decoder(AlarmChanged).decode


async def take(store: NotificationStore, bodies: Iterable[bytes]) -> None:
    """Let notices wait for who wants them. Repeatable."""
    subscribers: dict[str, list[Subscriber]] = {}
    for body in bodies:
        try:
            event = _read(body)
        except INVALID_JSON as error:
            log.warning("an event of an alarm is not readable: %s", error)
            continue
        if event.tenant not in subscribers:
            subscribers[event.tenant] = await store.of_tenant(event.tenant)
        for one in subscribers[event.tenant]:
            if wants(one, event):
                for notice in _notices(one, event, datetime.now(UTC)):
                    await store.add(notice)


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


def _notices(subscriber: Subscriber, event: AlarmChanged, now: datetime) -> Iterable[Notice]:
    told = Told(
        change=event.change,
        alarm_id=event.alarm_id,
        severity=event.severity,
        content=event.content,
        value=event.value,
        raised_at=event.raised_at,
        cleared_at=event.cleared_at,
        device_id=event.device.device_id,
        device_name=event.device.name or event.device.sn,
    )
    due = to_ms(timing.due(subscriber.settings, now))
    for channel in subscriber.settings.channels:
        trouble = subscriber.trouble.get(channel)
        yield Notice(
            id=f"{event.event_id}.{subscriber.id}.{channel}",
            tenant=event.tenant,
            user=subscriber.id,
            channel=channel,
            due=max(due, trouble.until if trouble else 0),
            at=now,
            told=told,
        )


def listen(bus: Bus, store: NotificationStore) -> BatchConsumer:
    """The consumer that all replicas share; an event is acknowledged when its notices wait."""

    async def handle(messages: list[Msg]) -> None:
        with batch("notifications batch", [trace_of(message.headers) for message in messages]):
            await take(store, [message.data for message in messages])
            await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable=DURABLE,
        handle=handle,
        batch=BATCH,
        concurrency=1,
        subject=ALARMS,
        from_now=True,
    )
