"""The supervisor of a consumer."""

import asyncio
from types import SimpleNamespace
from typing import Any

from libs.common.bus import BatchConsumer


class Server:
    """Answers the request for a consumer in the very moment in which the job is cancelled."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.times = 0

    async def add_consumer(self, stream: str, config: Any) -> None:
        self.times += 1
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return  # as `asyncio.wait_for` does in Python 3.11


async def test_a_consumer_ends_when_its_cancellation_meets_an_answer() -> None:
    """`wait_for` hides that cancellation; a service that stops would wait for ever."""
    server = Server()
    consumer = BatchConsumer(
        bus=SimpleNamespace(js=server, client=None),  # type: ignore[arg-type]
        stream="EVENTS",
        durable="auth",
        handle=lambda _: asyncio.sleep(0),
    )
    job = asyncio.ensure_future(consumer.run())
    await server.asked.wait()

    job.cancel()
    await asyncio.wait({job}, timeout=2)

    assert job.cancelled()
    assert server.times == 1
