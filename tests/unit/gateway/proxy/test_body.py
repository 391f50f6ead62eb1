"""The body of a request knows whom it waits for."""

import asyncio
from typing import Any

import pytest

from services.gateway.proxy.body import RequestBody


@pytest.fixture
def sent() -> "asyncio.Queue[dict[str, Any]]":
    """What the client sends."""
    return asyncio.Queue()


def part(*, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": b"part", "more_body": more}


async def test_a_slow_client_and_a_slow_service_are_distinguished(
    sent: "asyncio.Queue[dict[str, Any]]",
) -> None:
    """The client is slow while it has to send, the service while it has to read."""
    body = RequestBody(sent.get, {b"content-length": b"12"}, 100)
    starting = asyncio.ensure_future(body.start())
    await asyncio.sleep(0)
    assert body.awaited
    sent.put_nowait(part(more=True))
    parts = await starting
    assert not body.awaited
    assert (await anext(parts), body.awaited) == (b"part", False)
    taking = asyncio.ensure_future(anext(parts))
    await asyncio.sleep(0)
    assert body.awaited
    sent.put_nowait(part(more=False))
    assert (await taking, body.awaited, body.finished) == (b"part", False, True)


@pytest.mark.parametrize(
    ("fields", "on_demand"),
    [
        ({b"expect": b"100-Continue", b"content-length": b"4"}, True),
        ({b"expect": b"100-continue", b"transfer-encoding": b"chunked"}, True),
        ({b"expect": b"100-continue", b"content-length": b"0"}, False),
        ({b"expect": b"100-continue"}, False),
        ({b"content-length": b"4"}, False),
    ],
)
async def test_100_continue_is_sent_when_expected(
    sent: "asyncio.Queue[dict[str, Any]]", fields: dict[bytes, bytes], on_demand: bool
) -> None:
    """The client must request it and have a body that was not read yet."""
    body = RequestBody(sent.get, fields, 100)
    assert body.on_demand == on_demand
    sent.put_nowait(part(more=False))
    await body.start()
    assert not body.on_demand
