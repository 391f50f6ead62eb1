"""What a client still sends after its refusal is read, within bounds."""

import asyncio
import itertools
from typing import Any

import pytest

from libs.common.errors import Unauthenticated
from services.gateway.proxy import forward as refusal
from services.gateway.proxy.body import RequestBody

PART = b"p" * 1000
CHUNKED = {b"transfer-encoding": b"chunked"}


class Client:
    """Sends parts, then says `last`, or nothing more when that is None."""

    def __init__(self, parts: int | None, last: dict[str, Any] | None = None) -> None:
        self.taken = 0
        self.answer: list[dict[str, Any]] = []
        self._numbers = itertools.count() if parts is None else iter(range(parts))
        self._last = last

    async def receive(self) -> Any:
        """The next message."""
        await asyncio.sleep(0)
        if next(self._numbers, None) is not None:
            self.taken += 1
            return {"type": "http.request", "body": PART, "more_body": True}
        if self._last is None:
            await asyncio.Event().wait()
        return self._last

    async def send(self, message: Any) -> None:
        """Take a message of the answer."""
        self.answer.append(message)

    async def refused(self, fields: dict[bytes, bytes] = CHUNKED) -> dict[bytes, bytes]:
        """Refuse a request of the client; give the fields of the answer."""
        body = RequestBody(self.receive, fields, 10)
        error = Unauthenticated("who are you")
        await refusal.send_error(self.send, error, path="/x", request_id="1", body=body)
        content = b"".join(message["body"] for message in self.answer[1:])
        found = dict(self.answer[0]["headers"])
        assert (len(content), self.answer[-1]["more_body"]) == (
            int(found[b"content-length"]),
            False,
        )
        return found


@pytest.mark.parametrize(
    "last",
    [{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}],
)
async def test_body_is_read_to_its_end(last: dict[str, Any]) -> None:
    """The answer is whole at once; it ends when the body has, or the client has gone."""
    client = Client(50, last)
    assert (await client.refused())[b"connection"] == b"close"
    assert (client.taken, len(client.answer[1]["body"]) > 0) == (50, True)


async def test_endless_body_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends on and on is read for so many bytes and no more."""
    monkeypatch.setattr(refusal, "MAX_DISCARDED_BYTES", 20_000)
    client = Client(None)
    await client.refused()
    assert client.taken == 20


@pytest.mark.parametrize("bound", ["DISCARD_SILENCE_SECONDS", "MAX_DISCARD_SECONDS"])
async def test_silent_client_is_not_waited_for(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends no more is left after a while."""
    monkeypatch.setattr(refusal, bound, 0.05)
    client = Client(3)
    await client.refused()
    assert client.taken == 3


async def test_slow_client_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends a little now and then is left after a while, too."""
    monkeypatch.setattr(refusal, "MAX_DISCARD_SECONDS", 0.05)
    monkeypatch.setattr(refusal, "MAX_DISCARDED_BYTES", float("inf"))
    client = Client(None)
    await client.refused()
    assert client.taken > 0


async def test_client_that_awaits_a_go_ahead_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its body does not come, so the end does; not even a small one leaves the connection."""
    for bound in ("DISCARD_SILENCE_SECONDS", "MAX_DISCARD_SECONDS"):
        monkeypatch.setattr(refusal, bound, 600.0)
    client = Client(0)
    fields = {b"content-length": b"4", b"expect": b"100-Continue"}
    async with asyncio.timeout(30):
        assert (await client.refused(fields))[b"connection"] == b"close"


@pytest.mark.parametrize("fields", [{}, {b"content-length": b"0", b"expect": b"100-continue"}])
async def test_nothing_to_read_keeps_the_connection(fields: dict[bytes, bytes]) -> None:
    """Without a body the connection stays, whatever the client expects."""
    client = Client(None)
    assert b"connection" not in await client.refused(fields)
    assert (client.taken, len(client.answer)) == (0, 2)
