"""Consumers that read batches, on a real NATS."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from nats.aio.msg import Msg

from libs.common.bus import DEAD, EVENTS, BatchConsumer, Bus, OutgoingMessage, acknowledge
from libs.common.bus.consumer import MAX_BATCH_BYTES
from tests.integration.common.messages import events


@contextlib.asynccontextmanager
async def running(bus: Bus, consumer: BatchConsumer) -> AsyncIterator[None]:
    """Run a consumer of `EVENTS` inside, for at most 20 s, and delete it."""
    job = asyncio.ensure_future(consumer.run())
    try:
        async with asyncio.timeout(20):
            yield
    finally:
        job.cancel()
        await asyncio.wait({job})
        await bus.js.delete_consumer(EVENTS, consumer.durable)


async def test_a_batch_is_bounded_by_bytes(bus: Bus):
    """Many large messages come in several batches that fit in memory; none is lost."""
    large, number = b"x" * 900_000, 25
    await bus.publish([OutgoingMessage(f"event.t.{n}", b"%d " % n + large) for n in range(number)])
    sizes: list[int] = []
    seen: set[bytes] = set()
    done = asyncio.Event()

    async def take(messages: list[Msg]) -> None:
        sizes.append(sum(len(message.data) for message in messages))
        seen.update(message.data.partition(b" ")[0] for message in messages)
        await acknowledge(bus.client, messages)
        if len(seen) == number:
            done.set()

    consumer = BatchConsumer(
        bus=bus, stream=EVENTS, durable="bytes", handle=take, batch=1000, from_now=False
    )
    async with running(bus, consumer):
        await done.wait()
    assert max(sizes) <= MAX_BATCH_BYTES
    assert len(sizes) < number


async def test_a_consumer_applies_changed_subjects(bus: Bus):
    """Events that it did not want at the time of an earlier request are not delivered."""
    wanted = ["event.none"]
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(messages: list[Msg]) -> None:
        await acknowledge(bus.client, messages)
        for message in messages:
            received.put_nowait(message.data)

    consumer = BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable="changes",
        handle=take,
        subjects=lambda: tuple(wanted),
        from_now=True,
    )
    async with running(bus, consumer):
        await consumer.apply_subjects()
        wanted[:] = ["event.a.>"]
        await consumer.apply_subjects()
        await bus.publish([OutgoingMessage(f"event.{one}.x", one.encode()) for one in "ab"])
        assert await received.get() == b"a"
        wanted[:] = ["event.b.>"]
        await bus.publish([OutgoingMessage("event.a.x", b"a2")])
        assert await received.get() == b"a2"  # ends a request; the next one applies the change
        await bus.publish([OutgoingMessage(f"event.{one}.x", one.encode()) for one in "ab"])
        assert await received.get() == b"b"


@pytest.mark.parametrize(("lingers", "sizes"), [(True, [2]), (False, [1, 1])])
async def test_a_batch_that_may_linger_includes_later_messages(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, lingers: bool, sizes: list[int]
):
    """The second message arrives while the first one waits."""
    monkeypatch.setattr("libs.common.bus.consumer.LINGER_SECONDS", 0.5)
    first, second = events(1), events(2)
    handled: list[int] = []
    asked: list[asyncio.Task[None]] = []
    done = asyncio.Event()

    def may_linger(_: list[Msg]) -> bool:
        if not asked:
            asked.append(asyncio.ensure_future(bus.publish(second)))
        return lingers

    async def take(messages: list[Msg]) -> None:
        handled.append(len(messages))
        await acknowledge(bus.client, messages)
        if sum(handled) == len(first + second):
            done.set()

    await bus.publish(first)
    consumer = BatchConsumer(
        bus=bus, stream=EVENTS, durable="lingers", handle=take, may_linger=may_linger
    )
    async with running(bus, consumer):
        await done.wait()
    assert handled == sizes


async def test_a_consumer_waits_with_the_request_that_reads(bus: Bus):
    """One request waits for the first message, and returns others that wait with it."""
    requests: asyncio.Queue[Msg] = asyncio.Queue()
    batches: asyncio.Queue[list[bytes]] = asyncio.Queue()
    busy = asyncio.Event()

    async def handle(messages: list[Msg]) -> None:
        await acknowledge(bus.client, messages)
        batches.put_nowait([message.data for message in messages])
        await busy.wait()

    subject = f"$JS.API.CONSUMER.MSG.NEXT.{EVENTS}.waiting"
    subscription = await bus.client.subscribe(subject, cb=requests.put)
    consumer = BatchConsumer(
        bus=bus, stream=EVENTS, durable="waiting", handle=handle, concurrency=1, from_now=True
    )
    try:
        async with running(bus, consumer):
            await requests.get()
            await bus.publish([OutgoingMessage("event.t.1", b"first")])
            assert await batches.get() == [b"first"]
            await bus.publish([OutgoingMessage("event.t.2", text) for text in (b"a", b"b")])
            assert requests.empty()
            busy.set()
            assert await batches.get() == [b"a", b"b"]
    finally:
        await subscription.unsubscribe()


async def test_a_consumer_shows_at_once_that_its_stream_was_created_again(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams are measured later."""
    shown: dict[str, float] = {}

    def show(created: float, labels: dict[str, str]) -> None:
        shown[labels["stream"]] = created

    async def handle(_: list[Msg]) -> None:
        """Do nothing with messages."""

    monkeypatch.setattr("libs.common.bus.consumer.recreated_gauge.set", show)
    await bus.js.delete_stream(DEAD)
    before = datetime.now(UTC) - timedelta(seconds=5)
    await BatchConsumer(bus=bus, stream=DEAD, durable="again", handle=handle)._ensure_consumer(DEAD)
    await bus.js.delete_consumer(DEAD, "again")
    assert shown[DEAD] > before.timestamp()
