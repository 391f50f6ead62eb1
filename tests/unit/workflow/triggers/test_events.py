"""Events that have to come again."""

import asyncio
from types import SimpleNamespace

from services.workflow.triggers.events import MAX_DELAY, DelayedEvents, EventConsumer
from services.workflow.triggers.listener_index import ListenerIndex


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_event_comes_again_later_and_later_for_five_minutes():
    """Then it is given up: by its runs it is known for ten minutes only."""
    delayed = DelayedEvents(Clock())
    seconds = [delayed.delay("t", age) for age in (0, 0.9, 2, 4, 299, 300, 900)]
    assert seconds == [1, 1, 2, 4, MAX_DELAY, None, None]


def test_a_tenant_has_no_more_held_back_than_are_left_to_others():
    """Another tenant has room, and redelivered events are not counted."""
    clock = Clock()
    delayed = DelayedEvents(clock, most=8)
    assert [delayed.delay("busy", 1) for _ in range(5)] == [1, 1, 1, 1, None]
    assert delayed.delay("new", 1) == 1
    clock.now = 1.0
    assert delayed.delay("busy", 2) == 2


class Bus:
    """Collects what is written to the bus."""

    def __init__(self) -> None:
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
