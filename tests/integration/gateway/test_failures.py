"""A service that fails is told apart: away, broken off, nonsense, too slow."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from .conftest import DEVICES, Recorder, Start, answer

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def raw_service(handle: Handler) -> AsyncIterator[str]:
    """A service that speaks bytes; give the setting that names it as `device`."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await handle(reader, writer)
        writer.close()

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    try:
        yield f"device=http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def saying(text: bytes) -> Handler:
    """A service that answers each connection's first request with `text` and closes."""

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        await writer.drain()

    return handle


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        (b"", 502, "bad_gateway"),
        (b"SSH-2.0-what\r\n\r\n", 502, "bad_gateway"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", 502, "bad_gateway"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000, 502, "bad_gateway"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
         502, "bad_gateway"),
    ],
)  # fmt: skip
async def test_nonsense_is_502(start: Start, said: bytes, status: int, code: str) -> None:
    """A service that breaks off or does not speak HTTP is 502, with the request's id."""
    async with raw_service(saying(said)) as upstreams, start(upstreams=upstreams) as gateway:
        reply = await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer())
    assert (reply.status_code, reply.json()["errCode"]) == (status, code)
    assert reply.json()["requestId"] == reply.headers["x-request-id"]


async def test_interim_answers_are_skipped(start: Start) -> None:
    """103 Early Hints of a service is not taken for its answer."""
    said = (
        b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    )
    async with raw_service(saying(said)) as upstreams, start(upstreams=upstreams) as gateway:
        reply = await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer())
    assert (reply.status_code, reply.content, "link" in reply.headers) == (200, b"ok", False)


async def test_answer_until_close(start: Start) -> None:
    """An answer without a length ends with its connection, and passes whole."""
    said = b"HTTP/1.0 200 OK\r\n\r\nto the end"
    async with raw_service(saying(said)) as upstreams, start(upstreams=upstreams) as gateway:
        reply = await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer())
    assert (reply.status_code, reply.content) == (200, b"to the end")


async def test_broken_body_is_not_passed_off_as_whole(start: Start) -> None:
    """When a service breaks off in the body, the client's connection breaks off too."""
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    async with raw_service(saying(said)) as upstreams, start(upstreams=upstreams) as gateway:
        token = await gateway.token()
        reader, writer = await gateway.wire(
            f"GET {DEVICES}/5 HTTP/1.1\nHost: a\nAuthorization: Bearer {token}\n\n"
        )
        everything = await asyncio.wait_for(reader.read(), 3)
        writer.close()
    assert b"hello" in everything
    assert not everything.endswith(b"0\r\n\r\n")


async def test_service_that_is_away_is_503(start: Start, auth: Recorder) -> None:
    """A refused connection is 503 with Retry-After; other services are served meanwhile."""
    upstreams = f"device=http://127.0.0.1:1,auth=http://127.0.0.1:{auth.port}"
    async with start(upstreams=upstreams) as gateway:
        reply = await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer())
        other = await gateway.http.post("/oauth/token")
    assert (reply.status_code, reply.json()["errCode"]) == (503, "service_unavailable")
    assert reply.headers["retry-after"] == "1"
    assert other.status_code == 200


async def test_unresponsive_address_is_503_in_time(start: Start) -> None:
    """An address that drops packets costs the connect timeout and no more."""
    settings = {"upstreams": "device=http://192.0.2.1:80", "connect_timeout": 0.3}
    async with start(**settings) as gateway:
        started = time.monotonic()
        reply = await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer())
    assert (reply.status_code, time.monotonic() - started < 2) == (503, True)


async def test_slow_service_is_504(start: Start, device: Recorder) -> None:
    """A service that does not answer in time is 504, and learns that nobody waits."""
    gone = asyncio.Event()

    async def respond(seen, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    device.respond = respond
    async with start(request_timeout=0.3) as gateway:
        reply = await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer())
        await asyncio.wait_for(gone.wait(), 2)
    assert (reply.status_code, reply.json()["errCode"]) == (504, "gateway_timeout")


async def test_long_poll_gets_its_wait(start: Start, device: Recorder) -> None:
    """`/ingest/…/commands?wait=` may take as long as it asks for, on top of the limit."""

    async def respond(seen, receive, send):
        await asyncio.sleep(0.6)
        await answer(send, b"[]")

    device.respond = respond
    async with start(request_timeout=0.3) as gateway:
        login = await gateway.device()
        path = f"/ingest/v1/{login[0]}/commands"
        waits = await gateway.http.get(f"{path}?wait=1", auth=login)
        plain = await gateway.http.get(path, auth=login)
    assert (waits.status_code, plain.status_code) == (200, 504)


async def test_slow_client_is_408(start: Start) -> None:
    """A client that does not send its body in time is 408: the service is not to blame."""
    async with start(request_timeout=0.3) as gateway:
        token = await gateway.token()
        reader, writer = await gateway.wire(
            f"POST {DEVICES} HTTP/1.1\nHost: a\nAuthorization: Bearer {token}\n"
            "Content-Length: 100\n\nhalf"
        )
        first = await asyncio.wait_for(reader.readline(), 3)
        writer.close()
    assert first.split()[1] == b"408"


async def test_stale_connection_is_replaced_for_get_only(start: Start) -> None:
    """A kept-alive connection that the service just closed: GET is sent again, POST is not."""
    requests = []

    async def handle(reader, writer):
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        requests.append(await reader.readuntil(b"\r\n\r\n"))  # read, and closed without a word

    async with raw_service(handle) as upstreams, start(upstreams=upstreams) as gateway:
        headers = await gateway.bearer()
        found = []
        for method in ("GET", "GET", "POST", "POST"):
            reply = await gateway.http.request(method, DEVICES, headers=headers)
            found.append(reply.status_code)
    assert found == [200, 200, 502, 200]
    assert [text.split()[0] for text in requests] == [b"GET", b"GET", b"GET", b"POST", b"POST"]


async def test_connections_are_kept(start: Start) -> None:
    """One request after another uses one connection to the service."""
    connections = 0

    async def handle(reader, writer):
        nonlocal connections
        connections += 1
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with raw_service(handle) as upstreams, start(upstreams=upstreams) as gateway:
        headers = await gateway.bearer()
        for _ in range(5):
            await gateway.http.get(DEVICES, headers=headers)
    assert connections == 1


async def test_too_many_requests_in_hand_are_503(start: Start, device: Recorder) -> None:
    """A service with all the requests it may have is not given more."""
    go_on = asyncio.Event()

    async def respond(seen, receive, send):
        await go_on.wait()
        await answer(send, b"{}")

    device.respond = respond
    async with start(upstream_requests=2) as gateway:
        first = [
            asyncio.ensure_future(gateway.http.get(DEVICES, headers=await gateway.bearer(tenant)))
            for tenant in ("t1", "t2")
        ]
        async with asyncio.timeout(30):
            while len(device.seen) < 2:
                await asyncio.sleep(0.01)
        refused = await gateway.http.get(DEVICES, headers=await gateway.bearer("t3"))
        go_on.set()
        served = [(await one).status_code for one in first]
    assert (refused.status_code, served) == (503, [200, 200])
    assert refused.headers["retry-after"] == "1"


async def test_smuggled_request_is_refused(start: Start, device: Recorder) -> None:
    """A request with both Content-Length and Transfer-Encoding does not get in."""
    async with start() as gateway:
        token = await gateway.token()
        reader, writer = await gateway.wire(
            f"POST {DEVICES} HTTP/1.1\nHost: a\nAuthorization: Bearer {token}\n"
            "Content-Length: 4\nTransfer-Encoding: chunked\n\n0\n\n"
        )
        first = await asyncio.wait_for(reader.readline(), 3)
        writer.close()
    assert (first.split()[1], device.seen) == (b"400", [])
