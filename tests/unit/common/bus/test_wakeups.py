"""Wakeups between two processes whose messages can be lost."""

import asyncio
from typing import Any

import pytest

from libs.common.bus import Wakeups, wakeups
from libs.common.jobs import run_in_background


class Wire:
    """A bus between processes, which can lose messages."""

    def __init__(self) -> None:
        self.subscribers: list[Any] = []
        self.is_broken = False
        self.client = self
        self.published = asyncio.Event()

    async def subscribe(self, _: str, cb: Any) -> None:
        self.subscribers.append(cb)

    async def publish_core(self, _: str, data: bytes) -> None:
        self.published.set()
        for receive in () if self.is_broken else self.subscribers:
            await receive(type("Message", (), {"data": data}))


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr(wakeups, "MIN_BEAT_SECONDS", 0.0)
    monkeypatch.setattr(wakeups, "BEAT_SECONDS", 0.02)
    return Wire()


def process(wire: Any) -> Wakeups:
    return Wakeups(wire, "device")


async def test_a_change_wakes_loops_of_its_topic_in_all_processes(wire: Wire) -> None:
    """Loops of other topics keep resting."""
    first, second = process(wire), process(wire)
    here, there, other = (
        first.create_event("alarms"),
        second.create_event("alarms"),
        second.create_event("imports"),
    )
    async with asyncio.timeout(10), run_in_background(first.run(), second.run()):
        first.notify("alarms")
        assert here.is_set()
        await there.wait()
    assert not other.is_set()


async def test_a_lost_message_delays_a_loop_only_until_the_next_one(wire: Wire) -> None:
    """The next message has the same numbers, so the receiver notices the change."""
    first, second = process(wire), process(wire)
    there = second.create_event("alarms")
    async with asyncio.timeout(10), run_in_background(first.run(), second.run()):
        await wire.published.wait()
        wire.is_broken = True
        wire.published.clear()
        first.notify("alarms")
        await wire.published.wait()
        assert not there.is_set()
        wire.is_broken = False
        await there.wait()


def test_a_process_that_falls_silent_wakes_all_loops_once() -> None:
    """It may have ended between a commit and its message."""
    receiver = process(None)
    topics = [receiver.create_event("alarms"), receiver.create_event("imports")]
    receiver.process_counts(b'{"process":"other","topics":{}}')

    receiver.wake_after_silence(0.0)
    assert not any(event.is_set() for event in topics)
    receiver.wake_after_silence(float("inf"))
    assert all(event.is_set() for event in topics)

    for event in topics:
        event.clear()
    receiver.wake_after_silence(float("inf"))
    assert not any(event.is_set() for event in topics)


async def test_a_process_without_connection_wakes_its_loops_again_and_again(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears neither others nor itself."""
    monkeypatch.setattr(wakeups, "MAX_SILENCE_SECONDS", 0.05)
    wire.is_broken = True
    alone = process(wire)
    event = alone.create_event("alarms")
    async with asyncio.timeout(10), run_in_background(alone.run()):
        for _ in range(3):
            await event.wait()
            event.clear()
