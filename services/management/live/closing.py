"""The sending end of a WebSocket, and its closing."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from litestar import WebSocket
from litestar.exceptions import WebSocketDisconnect

from libs.common.scheduling import FairScheduler

MALFORMED = 1007
TRY_AGAIN = 1013
LONGEST_REASON = 120
"""Characters of a close reason, which has at most 123 bytes (RFC 6455, 5.5.1)."""


WRITABLE = "writable"
"""Name in the state of a connection: the event that says that its client keeps up."""


class Closer:
    """Sends on a socket, and closes it from anywhere: once, with a code and a reason."""

    __slots__ = ("_closing", "_scheduler", "socket")

    def __init__(self, socket: WebSocket[Any, Any, Any], scheduler: FairScheduler) -> None:
        self.socket = socket
        self._scheduler = scheduler
        self._closing: asyncio.Task[None] | None = None

    async def send(self, text: str) -> None:
        """Send a frame of text."""
        with suppress(OSError, WebSocketDisconnect):  # who reads is told that the client has gone
            await self.socket.send_data(text, mode="text")

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary frame."""
        with suppress(OSError, WebSocketDisconnect):
            await self.socket.send_data(data, mode="binary")

    async def send_next(self, tenant: str, next_frame: Callable[[], str | bytes | None]) -> None:
        """Send what `next_frame` returns, once the client keeps up and its tenant has its turn.

        Nothing is encoded, and no turn is held, for a client that does not keep up.
        """
        writable: asyncio.Event = self.socket.scope["state"][WRITABLE]
        sent = False
        while not sent:
            await writable.wait()
            async with self._scheduler.slot(tenant):
                if not writable.is_set():
                    continue
                frame = next_frame()
                if isinstance(frame, str):
                    await self.send(frame)
                elif frame is not None:
                    await self.send_bytes(frame)
                sent = True
                await asyncio.sleep(0)

    async def closed(self) -> None:
        """Wait until what was closed is."""
        if self._closing is not None:
            with suppress(OSError, WebSocketDisconnect):
                await self._closing

    def close(self, code: int, reason: str) -> None:
        """Close with a code and a reason; repeatable."""
        if self._closing is None:
            plain = reason.encode("ascii", "replace").decode()[:LONGEST_REASON]
            self._closing = asyncio.ensure_future(self.socket.close(code=code, reason=plain))
