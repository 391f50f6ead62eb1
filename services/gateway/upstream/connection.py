"""An HTTP/1.1 connection to a service, which serves one exchange after another."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import cast

import httptools

HIGH_WATER = 64 * 1024
"""Bytes of a body that may wait before reading from the service pauses."""
LARGEST_HEAD = 64 * 1024
"""Maximum bytes of the head of an answer."""
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
"""Fields that delimit a body; without them, the end of the connection does."""

Field = tuple[bytes, bytes]


class BrokenOff(Exception):
    """The connection ended before the answer."""


class StaleConnection(BrokenOff):
    """A kept-alive connection ended before the first byte of the answer."""


class NotHttp(Exception):
    """The service sent data that is not HTTP."""


class Answer:
    """The answer of a service while it is received; parts wait for the client."""

    def __init__(self, connection: "Connection") -> None:
        self.status = 0
        self.fields: list[Field] = []
        self.complete = False
        """Whether the last byte has arrived."""
        self.keep_alive = False
        self._connection = connection
        self._parts: deque[bytes] = deque()
        self.waiting = 0
        """Received bytes of the body that the client has not received."""
        self._failure: Exception | None = None
        self._wake: asyncio.Future[None] | None = None

    async def head(self) -> None:
        """Wait for status and fields; raise the error that ended the connection."""
        while not self.status:
            await self._wait_for_more()

    async def part(self) -> tuple[bytes, bool]:
        """Return the next part of the body, and whether more follows."""
        while not self._parts and not self.complete:
            await self._wait_for_more()
        parts, self._parts = self._parts, deque()
        if self.waiting > HIGH_WATER:
            self._connection.resume()
        self.waiting = 0
        return parts[0] if len(parts) == 1 else b"".join(parts), not self.complete

    def put_head(self, status: int, fields: list[Field]) -> None:
        """Store the head."""
        self.status, self.fields = status, fields
        self._notify()

    def put_part(self, part: bytes) -> None:
        """Store a part of the body."""
        self._parts.append(part)
        self.waiting += len(part)
        if self.waiting > HIGH_WATER:
            self._connection.pause()
        self._notify()

    def end(self, *, keep_alive: bool) -> None:
        """Mark the answer as complete."""
        self.complete, self.keep_alive = True, keep_alive
        self._notify()

    def fail(self, error: Exception) -> None:
        """Store the error that ended the answer; received parts remain available."""
        if not self.complete and self._failure is None:
            self._failure = error
            self._notify()

    async def _wait_for_more(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._wake = self._connection.loop.create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Connection(asyncio.Protocol):
    """An HTTP/1.1 connection to a service, and the parser's callbacks."""

    def __init__(self) -> None:
        self.made = self.idle_since = time.monotonic()
        self.exchanges = 0
        self.closed = False
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self._fields: list[Field] = []
        self._head_size = 0
        self._bodiless = False
        self._framed = False
        self._sending: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None

    def start(self, head: bytes, body: bytes | None, *, bodiless: bool) -> Answer:
        """Send a request and return its answer, which arrives later.

        `bodiless` declares that the answer has no body, regardless of its fields (HEAD).
        """
        self.exchanges += 1
        self._bodiless = bodiless
        self._head_size = 0
        self._answer = answer = Answer(self)
        self._transport.write(head + body if body else head)
        return answer

    def stream(self, parts: AsyncIterator[bytes], *, chunked: bool) -> None:
        """Send the body of the request in the background."""
        self._sending = asyncio.ensure_future(self._send(parts, chunked=chunked))

    def finish(self) -> bool:
        """End the exchange; return whether the connection can be reused."""
        answer, self._answer = self._answer, None
        sending, self._sending = self._sending, None
        sent = sending is None or (sending.done() and not sending.cancelled())
        if sending is not None and not sent:
            sending.cancel()
        if self.closed or answer is None or not (answer.complete and answer.keep_alive and sent):
            self.close()
            return False
        self.resume()
        self.idle_since = time.monotonic()
        return True

    def close(self) -> None:
        """Close immediately."""
        if not self.closed:
            self.closed = True
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading."""
        if not self.closed and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if not self.closed and not self._transport.is_reading():
            self._transport.resume_reading()

    async def _send(self, parts: AsyncIterator[bytes], *, chunked: bool) -> None:
        try:
            async for part in parts:
                self._transport.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                if self._writable is not None:
                    await self._writable
            if chunked:
                self._transport.write(b"0\r\n\r\n")
        except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._answer is not None:
            self._answer.fail(error)
        self.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse data; unexpected data closes the connection."""
        if self._answer is None or self._answer.complete:
            self.close()
            return
        if not self._answer.status:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except (
            httptools.HttpParserCallbackError
        ) as error:  # a fault of the gateway, not of the service
            self._fail(_unwrap_error(error))
            return
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._answer.complete:
                self._fail(NotHttp(str(error)))
            return
        if self._head_size > LARGEST_HEAD and not self._answer.status:
            self._fail(NotHttp("the head of the answer is too large"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer: complete if the end of the connection delimits its body."""
        self.closed = True
        self.resume_writing()
        answer = self._answer
        if answer is None or answer.complete:
            return
        if not self._framed and not self._bodiless and answer.status and exc is None:
            answer.end(keep_alive=False)
        elif self.exchanges > 1 and not self._head_size:
            answer.fail(StaleConnection("the connection had been closed"))
        else:
            answer.fail(BrokenOff(f"the connection ended: {exc or 'end of file'}"))

    def pause_writing(self) -> None:
        """Pause sending the body, because the service reads slowly."""
        self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        """Resume sending the body."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # httptools

    def on_message_begin(self) -> None:
        """Reset the fields for a new answer, which may follow an interim one."""
        self._fields, self._framed = [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a field."""
        name = name.lower()
        self._fields.append((name, value))
        if name in _FRAMING:
            self._framed = True

    def on_headers_complete(self) -> None:
        """Pass on the head, unless it is an interim answer (1xx)."""
        status = self._parser.get_status_code()
        answer = self._answer
        if answer is None or status < 200:  # noqa: PLR2004 - the first final status
            return
        answer.put_head(status, self._fields)
        if self._bodiless:
            answer.end(keep_alive=self._parser.should_keep_alive())
            self._parser = httptools.HttpResponseParser(self)

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body."""
        if self._answer is not None and not self._answer.complete:
            self._answer.put_part(body)

    def on_message_complete(self) -> None:
        """End the answer."""
        if self._answer is not None and self._answer.status and not self._answer.complete:
            self._answer.end(keep_alive=self._parser.should_keep_alive())


def _unwrap_error(error: httptools.HttpParserCallbackError) -> Exception:
    """Return the error of a callback: the context of the parser's error."""
    return error.__context__ if isinstance(error.__context__, Exception) else error
