"""Connections that send bytes as they are: nothing is put right, and nothing heard is lost."""

import asyncio
from typing import Self

PATIENCE = 10.0
"""Seconds for an answer; who is told nothing by then is closed."""
_CHUNK = 65_536


class Wire:
    """One TCP connection and everything that it has received."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.heard = bytearray()
        self.open = False
        self._seen = 0
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it at once."""
        self.open = False
        self._writer.transport.abort()

    async def send(self, *parts: bytes) -> None:
        """Send bytes; `hear_until` reports a connection that has ended."""
        try:
            self._writer.write(b"".join(parts))
            await self._writer.drain()
        except OSError:
            self.open = False

    async def hear_until(self, end: bytes) -> bool:
        """Receive until `end` comes once more; False when the connection ends first."""
        try:
            async with asyncio.timeout(PATIENCE):
                while self.open and self.heard.find(end, self._seen) < 0:
                    await self.hear()
        except TimeoutError:
            self.open = False
        if self.open:
            self._seen = self.heard.find(end, self._seen) + len(end)
        return self.open

    async def hear_out(self) -> bytes:
        """Everything until the other side closes, or is silent for too long."""
        try:
            async with asyncio.timeout(PATIENCE):
                while self.open:
                    await self.hear()
        except TimeoutError:
            self.open = False
        return bytes(self.heard)

    async def hear(self) -> None:
        """Receive the next bytes; close when the other side has ended the connection."""
        try:
            more = await self._reader.read(_CHUNK)
        except OSError:
            more = b""
        self.heard += more
        self.open = bool(more)
