"""The answer of a service, as it comes in; its parts wait here until the client takes them."""

import asyncio
from collections import deque
from typing import Protocol

HIGH_WATER = 64 * 1024
"""Bytes of a body that wait before the service is made to pause."""

Field = tuple[bytes, bytes]


class Source(Protocol):
    """Where the parts come from."""

    def pause(self) -> None:
        """Stop reading from the service."""

    def resume(self) -> None:
        """Read on."""


class Answer:
    """Status and header fields, and the body part by part."""

    def __init__(self, source: Source) -> None:
        self.status = 0
        self.fields: list[Field] = []
        self.complete = False
        """Whether the last byte is here."""
        self.keep_alive = False
        self._source = source
        self._parts: deque[bytes] = deque()
        self._waiting = 0
        self._failure: Exception | None = None
        self._wake: asyncio.Future[None] | None = None

    async def head(self) -> None:
        """Return when status and fields are here; raise what ended the connection."""
        while not self.status:
            await self._more()

    async def part(self) -> tuple[bytes, bool]:
        """The next part of the body, and whether there is more after it."""
        while not self._parts and not self.complete:
            await self._more()
        parts, self._parts = self._parts, deque()
        if self._waiting > HIGH_WATER:
            self._source.resume()
        self._waiting = 0
        return parts[0] if len(parts) == 1 else b"".join(parts), not self.complete

    def put_head(self, status: int, fields: list[Field]) -> None:
        """Take the head in."""
        self.status, self.fields = status, fields
        self._notify()

    def put_part(self, part: bytes) -> None:
        """Take a part of the body in."""
        self._parts.append(part)
        self._waiting += len(part)
        if self._waiting > HIGH_WATER:
            self._source.pause()
        self._notify()

    def end(self, *, keep_alive: bool) -> None:
        """There is no more."""
        self.complete, self.keep_alive = True, keep_alive
        self._notify()

    def fail(self, error: Exception) -> None:
        """It broke off; parts that are here can still be taken."""
        if not self.complete and self._failure is None:
            self._failure = error
            self._notify()

    async def _more(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
