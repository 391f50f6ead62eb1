"""uvicorn's HTTP/1.1 protocol with limits on memory and time per client.

uvicorn collects header fields and trailers as long as a client sends them, waits for them without a
limit, and keeps an answer until the client has received it. A single client could exhaust the
memory, and a few could occupy all connections.
"""

import asyncio
from collections.abc import Iterable
from contextvars import copy_context
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from libs.common.envelope import encode_error, error_headers
from libs.common.errors import HeaderTooLarge, MalformedRequest, ThingwayError
from libs.common.http.request import log_rejection, new_request_id
from libs.common.telemetry.logs import add_log_fields

MAX_HEAD_BYTES = 64 * 1024
"""Maximum bytes of the request line and header fields together, or of trailers and other data
between two parts of a body; more is 431."""
HEAD_TIMEOUT_SECONDS = 15.0
"""Seconds from the first byte of a head to its end, after which the connection is closed."""
STALL_SECONDS = 30.0
"""Seconds in which a client must receive pending data, after which the connection is aborted."""


HeaderFields = Iterable[tuple[bytes, bytes]]


def error_response(error: ThingwayError, path: str = "", headers: HeaderFields = ()) -> bytes:
    """Log a rejected request; return the error answer in the envelope of `path`.

    The answer has the header fields `headers` and `Connection: close`.
    """
    request_id = new_request_id()
    copy_context().run(_log, error, request_id)
    return encode_response(error, HTTPStatus(error.status), path, request_id, headers)


def encode_response(
    error: ThingwayError, status: HTTPStatus, path: str, request_id: str, headers: HeaderFields
) -> bytes:
    """Return the bytes of an error answer with `Connection: close` and the fields `headers`."""
    body = encode_error(error, path=path, request_id=request_id)
    fields = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "x-request-id": request_id,
        "connection": "close",
        **error_headers(error),
    }
    more = b"".join(b"%s: %s\r\n" % field for field in headers)
    lines = "".join(f"{name.lower()}: {value}\r\n" for name, value in fields.items())
    head = f"HTTP/1.1 {status} {status.phrase}\r\n{lines}".encode("latin-1")
    return head + more + b"\r\n" + body


def _log(error: ThingwayError, request_id: str) -> None:
    add_log_fields(requestId=request_id)
    log_rejection(error, "", "connection")


class _JoiningTransport(asyncio.Transport):
    """A transport that joins the head of an answer and the start of its body.

    uvicorn writes them separately, and each write is a tenth of the gateway's cost of a request. A
    head without a body in the same iteration of the event loop is sent at the end of the iteration.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._first: bytes | None = None
        self._joins = True

    def write(self, data: bytes) -> None:  # type: ignore[override]
        """Delay the first write, and pass on all others."""
        if not self._joins:
            self._transport.write(data)
        elif self._first is None:
            self._first = data
            self._loop.call_soon(self._flush)
        elif data:
            first, self._first, self._joins = self._first, None, False
            self._transport.writelines((first, data))
        else:  # asyncio of Python 3.12 and later never completes an empty write
            self._flush()

    def close(self) -> None:
        """Close when everything is written."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Return whether the connection is closing."""
        return self._transport.is_closing()

    def _flush(self) -> None:
        self._joins = False
        first, self._first = self._first, None
        if first and not self._transport.is_closing():
            self._transport.write(first)


class BoundedProtocol(HttpToolsProtocol):
    """A connection of a client, with limits on the size of heads and on waiting time."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head = False
        self._size = 0
        self._moved = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the first request."""
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._head_ends()
        self._stop_stall_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; reject more than `MAX_HEAD_BYTES` of a head or between parts of a body."""
        self._moved = False
        super().data_received(data)
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return  # after an upgrade, the WebSocket protocol owns the transport
        self._size = 0 if self._moved else self._size + len(data)
        if self._size > MAX_HEAD_BYTES:
            self._reject(HeaderTooLarge(f"the header is larger than {MAX_HEAD_BYTES} bytes"))
        elif self._in_head:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_TIMEOUT_SECONDS, self.transport.close)
        elif self.timeout_keep_alive_task is None and (
            self.cycle is None or self.cycle.response_complete
        ):
            self._await_request()

    def send_400_response(self, msg: str) -> None:
        """Reject bytes that are not HTTP; called by uvicorn."""
        self._reject(MalformedRequest(msg))

    def _reject(self, error: ThingwayError) -> None:
        path = bytes(getattr(self, "url", b"")).partition(b"?")[0]
        headers = self.server_state.default_headers
        self.transport.write(error_response(error, path.decode("latin-1"), headers))
        self.transport.close()

    def pause_writing(self) -> None:
        """Start the stall timeout, because the client does not receive data."""
        super().pause_writing()
        self._stop_stall_timer()
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the stall timeout."""
        self._stop_stall_timer()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Start the stall timeout for the unsent rest of an answer that closes the connection."""
        super().on_response_complete()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._stop_stall_timer()
            self._stall_timer = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        """Abort an idle connection, with any data that the client has not received."""
        self.transport.abort()

    def on_message_begin(self) -> None:
        """Record that the head of a request has begun."""
        self._in_head = True
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """Record that body data has arrived."""
        self._moved = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """End the timeout of the head, and let the answer's head be sent with its body."""
        self._head_ends()
        if self.expect_100_continue and self.parser.get_http_version() == "1.0":
            self.expect_100_continue = False  # HTTP/1.0 has no status 100 (RFC 9110, 10.1.1)
            self.headers[:] = [field for field in self.headers if field[0] != b"expect"]
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self.cycle.transport = _JoiningTransport(self.transport, self.loop)

    def _await_request(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _head_ends(self) -> None:
        self._in_head, self._moved = False, True
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
