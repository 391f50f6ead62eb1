"""The newest messages of a subject, out of a stream with many others."""

from collections.abc import AsyncIterator

import pytest
from nats.js.api import StreamConfig

from libs.common.bus import Bus, OutgoingMessage
from libs.common.bus.stored_messages import read_newest

STREAM = "NEWEST"


@pytest.fixture
async def stream(bus: Bus) -> AsyncIterator[Bus]:
    """1000 messages, every tenth of them of `newest.mine`, the others of `newest.other`."""
    await bus.js.add_stream(StreamConfig(name=STREAM, subjects=["newest.>"]))
    names = ["mine" if number % 10 == 0 else "other" for number in range(1, 1001)]
    await bus.publish([OutgoingMessage(f"newest.{name}", b"") for name in names])
    yield bus
    await bus.js.delete_stream(STREAM)


async def sequences(bus: Bus, most: int, before: int | None = None) -> list[int]:
    """Where the messages that are found stand."""
    found = await read_newest(bus, STREAM, ["newest.mine"], most, before)
    return [entry.sequence for entry in found]


async def test_the_newest_come_first(stream: Bus) -> None:
    """As many as are asked for, though there are many more before them."""
    assert await sequences(stream, 3) == [1000, 990, 980]
    assert await sequences(stream, 3, before=500) == [490, 480, 470]
    assert await sequences(stream, 200) == list(range(1000, 0, -10))


async def test_there_may_be_none(stream: Bus) -> None:
    """Before the first one, of another subject, and in a stream that is empty."""
    assert await sequences(stream, 3, before=10) == []
    assert await read_newest(stream, STREAM, ["newest.nobody"], 3) == []
    await stream.js.purge_stream(STREAM)
    assert await sequences(stream, 3) == []


async def test_nothing_is_left_behind(stream: Bus) -> None:
    """No consumer outlives its answer."""
    await sequences(stream, 3)
    assert await stream.js.consumers_info(STREAM) == []
