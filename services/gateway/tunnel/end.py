"""The two connections of a tunnel, which forward data with back pressure."""

import asyncio
import socket
from typing import cast

MOST_READ, MOST_WAITING = 32 * 1024, 16 * 1024
"""Bytes that are read in one step, and that may wait for a peer before reading from the other
pauses."""
_buffer = memoryview(bytearray(MOST_READ))
"""The read buffer of all tunnels: its content is forwarded before the next read."""


class End(asyncio.BufferedProtocol):
    """A connection of a tunnel. It is not read while the other one cannot be written."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.other: End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and detect lost peers with TCP keep-alive."""
        self.transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's class does not inherit from it
        self.transport.set_write_buffer_limits(MOST_WAITING)
        keep_alive(self.transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        del sizehint
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Forward the received bytes."""
        self.data_received(bytes(_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Forward data."""
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Pause reading from the other connection."""
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading from the other connection."""
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other connection after its pending data is sent."""
        if self.other is not None:
            self.other.transport.close()
            self.other = None


def keep_alive(transport: asyncio.Transport) -> None:
    """Probe a silent peer after 60 s, and three times every 10 s."""
    found: socket.socket | None = transport.get_extra_info("socket")
    if found is None or found.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # not on all systems
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
