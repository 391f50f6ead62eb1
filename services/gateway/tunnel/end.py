"""The two ends of a tunnel: what comes in at the one goes out at the other, at its pace."""

import asyncio
import socket
from typing import cast

MOST_READ, MOST_WAITING = 32 * 1024, 16 * 1024
"""Bytes that are read at a time, and that wait for a peer before nothing more is read for it."""
_buffer = memoryview(bytearray(MOST_READ))
"""What was read last, of any tunnel: it is passed on before anything else is read."""


class End(asyncio.BufferedProtocol):
    """One end. While the other end takes nothing, this one reads nothing."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.other: End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; a peer that vanishes without a word is noticed by TCP."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self.transport.set_write_buffer_limits(MOST_WAITING)
        keep_alive(self.transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes are read to."""
        del sizehint
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was read."""
        self.data_received(bytes(_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Pass on."""
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """The peer does not keep up: read no more from the other."""
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """One end gone is the tunnel gone; what was written to the other is still sent."""
        if self.other is not None:
            self.other.transport.close()
            self.other = None


def keep_alive(transport: asyncio.Transport) -> None:
    """Let the kernel ask a silent peer whether it is there: after 60 s, thrice every 10 s."""
    found: socket.socket | None = transport.get_extra_info("socket")
    if found is None or found.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # not everywhere
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
