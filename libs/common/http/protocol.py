"""uvicorn's HTTP/1.1 protocol, with bounds for the head of a request.

uvicorn collects header fields for as long as a client sends them, and waits for them for
as long as it takes: one client could fill the memory, many could hold every connection.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD = 64 * 1024
"""Bytes that request line and header fields may take together; more is 431."""
HEAD_TIMEOUT = 15.0
"""Seconds from the first byte of a head to its end; later the connection is closed."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a client."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head = False
        self._head_size = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the connection when no request comes."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the head that was awaited."""
        self._head_ends()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; a head that is not complete after it is counted and timed."""
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        self._head_size += len(data)
        if self._head_size > MOST_HEAD:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self.transport.close)

    def on_message_begin(self) -> None:
        """The parser saw the first byte of a request."""
        self._in_head, self._head_size = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The parser saw the end of a head."""
        self._head_ends()
        if self.expect_100_continue and self.parser.get_http_version() == "1.0":
            self.expect_100_continue = False  # such a client knows no 100 (RFC 9110, 10.1.1)
            self.headers[:] = [field for field in self.headers if field[0] != b"expect"]
        super().on_headers_complete()

    def _head_ends(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
