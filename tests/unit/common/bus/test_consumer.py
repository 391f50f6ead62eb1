"""The supervisor of a consumer."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from libs.common.bus import BatchConsumer
from libs.common.bus import client as client_module
from libs.common.bus.client import RequestLostError


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
    batches = BatchConsumer(
        bus=SimpleNamespace(js=server, client=None),  # type: ignore[arg-type]
        stream="UPLINK",
        durable="auth",
        handle=lambda _: asyncio.sleep(0),
    )
    job = asyncio.ensure_future(batches.run())
    await server.asked.wait()

    job.cancel()
    await asyncio.wait({job}, timeout=2)

    assert job.cancelled()
    assert server.times == 1


class Requests:
    """A client whose server answers a request with heartbeats, then with `last`."""

    def __init__(self, last: Any) -> None:
        self.is_closed = False
        self.heartbeats = 3
        self.last = last

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, _: str, cb: Any, **options: Any) -> Any:
        self.receive = cb
        return SimpleNamespace(unsubscribe=lambda: asyncio.sleep(0))

    async def publish(self, _: str, request: bytes, reply: str) -> None:
        self.answering = asyncio.ensure_future(self.answer(reply))

    async def answer(self, reply: str) -> None:
        alive = SimpleNamespace(reply="", subject=reply, headers={"Status": "100"})
        for _ in range(self.heartbeats):
            await asyncio.sleep(0.1)
            await self.receive(alive)
        if self.last:
            await self.receive(self.last)


@pytest.mark.parametrize("answered", [True, False], ids=["message", "silence"])
async def test_heartbeats_keep_a_request_open(
    monkeypatch: pytest.MonkeyPatch, *, answered: bool
) -> None:
    """A request is open for longer than the server may be silent, and lost when it is silent."""
    monkeypatch.setattr(client_module, "MAX_SILENCE_SECONDS", 0.15)
    monkeypatch.setattr(client_module, "REQUEST_RETRY_SECONDS", 0.05)
    message = SimpleNamespace(reply="ack")
    client: Any = Requests(message if answered else None)
    async with asyncio.timeout(10), client_module.MessageInbox(client) as inbox:
        if answered:
            assert await inbox.request("next", {"batch": 1}) == [message]
        else:
            with pytest.raises(RequestLostError):
                await inbox.request("next", {"batch": 1})
