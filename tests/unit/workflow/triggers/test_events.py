"""Events that have to come again."""

import asyncio
from types import SimpleNamespace

import pytest

from libs.common.changes import parse_arrival_time
from services.device.telemetry.uplink import Uplink
from services.workflow.triggers.events import (
    MAX_CLOCK_SKEW_MS,
    MAX_DELAY_SECONDS,
    MAX_NEW_EVENT_AGE_MS,
    DelayedEvents,
    EventConsumer,
    NewEventDetector,
)
from services.workflow.triggers.listener_index import ListenerIndex

NOW = 1_800_000_000_000


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_event_comes_again_later_and_later_for_five_minutes():
    """Then it is given up: by its runs it is known for ten minutes only."""
    delayed = DelayedEvents(Clock())
    seconds = [delayed.count_and_delay("t", age) for age in (0, 0.9, 2, 4, 299, 300, 900)]
    assert seconds == [1, 1, 2, 4, MAX_DELAY_SECONDS, None, None]


def test_a_tenant_has_no_more_held_back_than_are_left_to_others():
    """Another tenant has room, and redelivered events are not counted."""
    clock = Clock()
    delayed = DelayedEvents(clock, maximum=8)
    assert [delayed.count_and_delay("busy", 1) for _ in range(5)] == [1, 1, 1, 1, None]
    assert delayed.count_and_delay("new", 1) == 1
    clock.now = 1.0
    assert delayed.count_and_delay("busy", 2) == 2


class Bus:
    """Collects what is written to the bus."""

    def __init__(self) -> None:
        self.stats = {"reconnects": 0}
        self.written: list[bytes] = []
        self.client = self

    async def _send_command(self, frames: bytes) -> None:
        self.written.append(frames)

    async def _flush_pending(self) -> None:
        pass


def followed(index: ListenerIndex) -> SimpleNamespace:
    ready = asyncio.Event()
    ready.set()
    return SimpleNamespace(index=index, ready=ready)


async def test_an_event_of_a_tenant_without_flows_is_not_decoded() -> None:
    """It is acknowledged, although its content is not readable."""
    bus = Bus()
    consumer = EventConsumer(bus, followed(ListenerIndex()), None)  # type: ignore[arg-type]
    await consumer.handle([SimpleNamespace(subject="event.t.device.7.reported", reply="ack")])  # type: ignore[list-item]
    assert bus.written == [b"PUB ack 0\r\n\r\n"]


def event(received: int = NOW, prefix: str = "r") -> str:
    """Return the id of an event of a report that the bus received at a time."""
    uplink = Uplink(
        sn="S",
        channel="report",
        payload=b"",
        sequence=7,
        received=received,
        delivered=1,
        message=None,
    )
    return f"{prefix}-{uplink.key}"


def reply(stored: int = NOW, delivered: int = 1, domain: str = "") -> str:
    """Return the reply subject of a message that the bus stored at a time."""
    return f"$JS.ACK.{domain}EVENTS.workflow.{delivered}.9.8.{stored * 1_000_000 + 5}.0"


def test_ids_of_reports_contain_their_arrival():
    """Other ids have no time."""
    assert parse_arrival_time(event()) == NOW
    assert parse_arrival_time(event(prefix="c")) == parse_arrival_time("4f1c") == 0


@pytest.mark.parametrize(
    ("expected", "subject", "event_id"),
    [
        (True, reply(), event()),
        (True, reply(), event(prefix="e")),
        (True, reply(domain="_.HASH."), event()),
        (True, reply(), event(NOW - MAX_NEW_EVENT_AGE_MS + 1)),
        (False, reply(), event(NOW - MAX_NEW_EVENT_AGE_MS)),
        (False, reply(), event(NOW + MAX_CLOCK_SKEW_MS + 1)),
        (False, reply(delivered=2), event()),
        (False, reply(delivered=2, domain="_.HASH."), event()),
        (False, reply(), "4f1c"),
    ],
)
def test_only_first_deliveries_of_recent_reports_are_new(expected, subject, event_id):
    """A repeated or late event may have run before."""
    novelty = NewEventDetector(
        SimpleNamespace(stats={"reconnects": 0}), lambda: NOW - MAX_CLOCK_SKEW_MS - 1
    )
    assert novelty.is_new(subject, event_id) is expected


def test_events_before_a_connection_are_not_new():
    """A server that was killed may have forgotten its deliveries."""
    client, clock = SimpleNamespace(stats={"reconnects": 0}), Clock()
    clock.now = NOW - MAX_CLOCK_SKEW_MS
    novelty = NewEventDetector(client, lambda: int(clock.now))
    assert not novelty.is_new(reply(), event())
    assert novelty.is_new(reply(NOW + 1), event())
    client.stats["reconnects"], clock.now = 1, NOW
    assert not novelty.is_new(reply(NOW + 1), event())
    assert novelty.is_new(reply(NOW + MAX_CLOCK_SKEW_MS + 1), event())
