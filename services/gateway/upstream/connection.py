"""An HTTP/1.1 connection to a service, which serves one exchange after another."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import cast

import httptools

MAX_WAITING_BYTES = 64 * 1024
"""Bytes of a body that may wait for the client before reading from the service pauses."""
MAX_HEAD_BYTES = 64 * 1024
"""Maximum bytes of the head of an answer."""
_LENGTH_FIELDS = frozenset({b"content-length", b"transfer-encoding"})
"""Fields that define where a body ends; without them, the connection's end does."""

HeaderField = tuple[bytes, bytes]


class ConnectionBroken(Exception):
    """The connection ended before the answer was complete."""


class StaleConnection(ConnectionBroken):
    """A kept-alive connection ended before the first byte of the answer."""


class InvalidAnswer(Exception):
    """The service sent data that is not HTTP, or a head above `MAX_HEAD_BYTES`."""


class ServiceAnswer:
    """The answer of a service while it is received; parts wait for the client."""

    def __init__(self, connection: "ServiceConnection") -> None:
        self.status = 0
        self.fields: list[HeaderField] = []
        self.complete = False
        """Whether the last byte has arrived."""
        self.keep_alive = False
        self._connection = connection
        self._parts: deque[bytes] = deque()
        self.waiting = 0
        """Received bytes of the body that the client has not received."""
        self._failure: Exception | None = None
        self._wake: asyncio.Future[None] | None = None

    async def wait_for_head(self) -> None:
        """Wait for status and fields; raise the error that ended the connection."""
        while not self.status:
            await self._wait_for_more()

    async def receive_part(self) -> tuple[bytes, bool]:
        """Wait for data of the body; return all that has arrived, and whether more follows.

        Raises the error that ended the answer.
        """
        while not self._parts and not self.complete:
            await self._wait_for_more()
        parts, self._parts = self._parts, deque()
        if self.waiting > MAX_WAITING_BYTES:
            self._connection.resume_reading()
        self.waiting = 0
        return parts[0] if len(parts) == 1 else b"".join(parts), not self.complete

    def store_head(self, status: int, fields: list[HeaderField]) -> None:
        """Store the head."""
        self.status, self.fields = status, fields
        self._wake_reader()

    def store_part(self, part: bytes) -> None:
        """Store a part of the body."""
        self._parts.append(part)
        self.waiting += len(part)
        if self.waiting > MAX_WAITING_BYTES:
            self._connection.pause_reading()
        self._wake_reader()

    def complete_answer(self, *, keep_alive: bool) -> None:
        """Mark the answer as complete."""
        self.complete, self.keep_alive = True, keep_alive
        self._wake_reader()

    def fail(self, error: Exception) -> None:
        """Store the error that ended the answer; received parts remain available."""
        if not self.complete and self._failure is None:
            self._failure = error
            self._wake_reader()

    async def _wait_for_more(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._wake = self._connection.loop.create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _wake_reader(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class ServiceConnection(asyncio.Protocol):
    """An HTTP/1.1 connection to a service, and the parser's callbacks."""

    def __init__(self) -> None:
        self.made = self.idle_since = time.monotonic()
        self.exchanges = 0
        self.closed = False
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._answer: ServiceAnswer | None = None
        self._fields: list[HeaderField] = []
        self._head_size = 0
        self._bodiless = False
        self._framed = False
        self._sending: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None

    def send_request(self, head: bytes, body: bytes | None, *, bodiless: bool) -> ServiceAnswer:
        """Send a request and return its answer, which arrives later.

        `bodiless` declares that the answer has no body, regardless of its fields (HEAD).
        """
        self.exchanges += 1
        self._bodiless = bodiless
        self._head_size = 0
        self._answer = answer = ServiceAnswer(self)
        self._transport.write(head + body if body else head)
        return answer

    def stream_body(self, parts: AsyncIterator[bytes], *, chunked: bool) -> None:
        """Send the body of the request in the background."""
        self._sending = asyncio.ensure_future(self._send_parts(parts, chunked=chunked))

    def end_exchange(self) -> bool:
        """End the exchange; return whether the connection can be reused, else close it."""
        answer, self._answer = self._answer, None
        sending, self._sending = self._sending, None
        sent = sending is None or (sending.done() and not sending.cancelled())
        if sending is not None and not sent:
            sending.cancel()
        if self.closed or answer is None or not (answer.complete and answer.keep_alive and sent):
            self.close()
            return False
        self.resume_reading()
        self.idle_since = time.monotonic()
        return True

    def close(self) -> None:
        """Close immediately."""
        if not self.closed:
            self.closed = True
            self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading."""
        if not self.closed and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        if not self.closed and not self._transport.is_reading():
            self._transport.resume_reading()

    async def _send_parts(self, parts: AsyncIterator[bytes], *, chunked: bool) -> None:
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
                self._fail(InvalidAnswer(str(error)))
            return
        if self._head_size > MAX_HEAD_BYTES and not self._answer.status:
            self._fail(InvalidAnswer("the head of the answer is too large"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer: as complete if the connection's end delimits the body, else as failed."""
        self.closed = True
        self.resume_writing()
        answer = self._answer
        if answer is None or answer.complete:
            return
        if not self._framed and not self._bodiless and answer.status and exc is None:
            answer.complete_answer(keep_alive=False)
        elif self.exchanges > 1 and not self._head_size:
            answer.fail(StaleConnection("the connection had been closed"))
        else:
            answer.fail(ConnectionBroken(f"the connection ended: {exc or 'end of file'}"))

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
        if name in _LENGTH_FIELDS:
            self._framed = True

    def on_headers_complete(self) -> None:
        """Pass on the head, unless it is an interim answer (1xx)."""
        status = self._parser.get_status_code()
        answer = self._answer
        if answer is None or status < 200:  # noqa: PLR2004 - the first final status
            return
        answer.store_head(status, self._fields)
        if self._bodiless:
            answer.complete_answer(keep_alive=self._parser.should_keep_alive())
            self._parser = httptools.HttpResponseParser(self)

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body."""
        if self._answer is not None and not self._answer.complete:
            self._answer.store_part(body)

    def on_message_complete(self) -> None:
        """End the answer."""
        if self._answer is not None and self._answer.status and not self._answer.complete:
            self._answer.complete_answer(keep_alive=self._parser.should_keep_alive())


def _unwrap_error(error: httptools.HttpParserCallbackError) -> Exception:
    """Return the error of a callback: the context of the parser's error."""
    return error.__context__ if isinstance(error.__context__, Exception) else error
