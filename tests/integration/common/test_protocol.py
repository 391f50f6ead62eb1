"""What a client may make a connection hold, over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.common.http import protocol
from tests.loglines import logged_lines
from tests.serving import serving

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
MAX_BYTES = 64 * 1024 * 1024
"""Bytes that a test sends at most."""


class App:
    """Reads a request and answers so many bytes."""

    def __init__(self, size: int = 2) -> None:
        self._size = size
        self.read = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
            return
        while (message := await receive())["type"] == "http.request":
            self.read += len(message["body"])
            if not message["more_body"]:
                break
        headers = [(b"content-length", b"%d" % self._size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * self._size})


@asynccontextmanager
async def client(
    app: App, keep_alive: float = 5
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to an application."""
    async with serving(app, keep_alive=keep_alive) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.close()


@pytest.mark.parametrize(
    ("before", "endless"),
    [
        (b"0\r\n", b"x: 1\r\n"),
        (b"0\r\nx: ", b"1"),
        (b"1;", b"x"),
        (b"1\r\na\r\n1;", b"x"),
    ],
    ids=["trailers", "a trailer", "the extension of a chunk", "that of a later chunk"],
)
async def test_the_head_of_a_request_is_bounded(before: bytes, endless: bytes) -> None:
    """A head without an end gets 431, and the connection is closed."""
    async with client(App()) as (reader, writer):
        writer.write(HEAD + before)
        sent, part = 0, endless * 8000
        async with asyncio.timeout(20):
            answer = asyncio.ensure_future(reader.read())
            while not answer.done() and sent < MAX_BYTES:
                writer.write(part)
                try:
                    await writer.drain()
                except OSError:
                    break
                sent += len(part)
            if answer.done() and not answer.exception():
                assert (await answer).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
        answer.cancel()
    assert sent < MAX_BYTES


@pytest.mark.parametrize(
    ("sent", "status", "names"),
    [
        (b"SSH-2.0-what\r\n\r\n", 400, ("error_code", "request_id")),
        (b"GET / HTTP/1.1\r\nHost a\r\n\r\n", 400, ("error_code", "request_id")),
        (b"GET /device/openapi/v1/x HTTP/1.1\r\nA b\r\n\r\n", 400, ("errCode", "requestId")),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, 431, ("error_code", "request_id")),
    ],
    ids=["no HTTP", "no field", "no field to the open API", "a header too large"],
)
async def test_an_invalid_request_gets_the_error_envelope(
    sent: bytes, status: int, names: tuple[str, str]
) -> None:
    """Header, body and log contain the same request id."""
    with logged_lines() as lines:
        async with client(App()) as (reader, writer), asyncio.timeout(20):
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            body = json.loads(await reader.read())
    assert head.startswith(b"HTTP/1.1 %d " % status)
    code, request_id = (body[name] for name in names)
    assert code in {"parameter_syntax_error", "header_too_large"}
    assert f"x-request-id: {request_id}\r\n".encode() in head
    assert request_id in {line.get("requestId") for line in lines}


async def test_a_body_in_many_small_parts_is_read_to_its_end() -> None:
    """However much there is between them in all."""
    app = App()
    async with client(app) as (reader, writer):
        writer.write(HEAD)
        for _ in range(100):
            writer.write(b"1\r\na\r\n" * 1000)
            await writer.drain()
        writer.write(b"0\r\nx: 1\r\n\r\n")
        async with asyncio.timeout(20):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    assert app.read == 100_000


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n"])
async def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    """Empty lines, which are allowed before a request, do not keep it open."""
    async with client(App(), keep_alive=0.1) as (reader, writer):
        writer.write(sent)
        async with asyncio.timeout(20):
            await reader.read()


@pytest.mark.parametrize("closing", [b"", b"Connection: close\r\n"])
async def test_a_client_that_does_not_read_the_answer_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, closing: bytes
) -> None:
    """The server does not keep unread answers forever."""
    monkeypatch.setattr(protocol, "STALL_SECONDS", 0.2)
    lost = asyncio.Event()
    original = protocol.BoundedProtocol.connection_lost

    def connection_lost(self: Any, error: Exception | None) -> None:
        lost.set()
        original(self, error)

    monkeypatch.setattr(protocol.BoundedProtocol, "connection_lost", connection_lost)
    async with client(App(64 * 1024 * 1024)) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n" + closing + b"\r\n")
        async with asyncio.timeout(20):
            await lost.wait()


class Written(asyncio.Transport):
    """Keeps what is written, part by part."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []

    def write(self, data: Any) -> None:
        self.parts.append(data)

    def writelines(self, list_of_data: Any) -> None:
        self.parts += list_of_data

    def is_closing(self) -> bool:
        return False


async def test_an_empty_part_is_not_written() -> None:
    """An answer without a body is its head: asyncio of Python 3.12 would never end the rest."""
    written = Written()
    answer = protocol._JoiningTransport(written, asyncio.get_running_loop())
    answer.write(b"head")
    answer.write(b"")
    assert written.parts == [b"head"]
