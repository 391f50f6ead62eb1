"""The sending end of a WebSocket, and its closing."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from litestar import WebSocket
from litestar.exceptions import WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from libs.common.contracts.mqtt import WS_PATH
from libs.common.scheduling import FairScheduler
from services.management.live.packets import LARGEST

MALFORMED, POLICY, TRY_AGAIN = 1007, 1008, 1013
"""Close codes (RFC 6455, 7.4.1, and its registry): bad data, policy violation, try again later."""
PATIENCE = 30.0
"""Seconds for which a client may read nothing at all before it is closed."""
LONGEST_REASON = 120
"""Characters of a close reason, which has at most 123 bytes (RFC 6455, 5.5.1)."""
WRITABLE = "writable"
"""Name in the state of a connection: the event that says that its client keeps up."""
STEPS = 16
"""Steps of all sockets (a frame that is read or sent) between two looks of the event loop at what
else there is to do, once they have used up a slice; one tenant alone has half of them."""
MOST_STEPS = 100_000
"""Steps of a tenant that wait: each socket has two at most."""
SLICE = 0.005
"""Seconds for which a long job holds the event loop."""

Pause = Callable[[], Awaitable[None]]


class Turns:
    """Turns of tenants at the event loop of a process, for the work that their sockets cause."""

    def __init__(self) -> None:
        self._scheduler = FairScheduler("live", STEPS, items=MOST_STEPS)
        self._until = 0.0
        """Steps need no turn before, until the event loop looks around again; 0 once it did."""

    @asynccontextmanager
    async def step(self, tenant: str) -> AsyncIterator[None]:
        """Wait for the turn of a tenant, when there is much to do; other tasks run afterwards."""
        now = time.monotonic()
        if not self._until:
            self._until = now + SLICE
            asyncio.get_running_loop().call_soon(self._start_again)
        if now < self._until:
            yield
            return
        async with self._scheduler.slot(tenant):
            yield
            await asyncio.sleep(0)

    def _start_again(self) -> None:
        self._until = 0.0


def slices() -> Pause:
    """Return a function that lets other tasks run when its caller has used up a slice."""
    until = time.monotonic() + SLICE

    async def pause() -> None:
        nonlocal until
        if time.monotonic() >= until:
            await asyncio.sleep(0)
            until = time.monotonic() + SLICE

    return pause


class Closer:
    """Sends on a socket, and closes it from anywhere: once, with a code and a reason."""

    __slots__ = ("_closing", "_turns", "socket")

    def __init__(self, socket: WebSocket[Any, Any, Any], turns: Turns) -> None:
        self.socket = socket
        self._turns = turns
        self._closing: asyncio.Task[None] | None = None

    async def send(self, data: str | bytes) -> None:
        """Send a frame of text, or a binary one."""
        with suppress(OSError, WebSocketDisconnect):  # who reads is told that the client has gone
            await self.socket.send_data(data, mode="text" if isinstance(data, str) else "binary")

    async def send_next(self, tenant: str, next_frame: Callable[[], str | bytes | None]) -> None:
        """Send what `next_frame` returns, once the client keeps up and its tenant has its turn.

        Nothing is encoded, and no turn is held, for a client that does not keep up. Raises
        `TimeoutError` when it reads nothing for too long.
        """
        writable: asyncio.Event = self.socket.scope["state"][WRITABLE]
        while True:
            if not writable.is_set():
                async with asyncio.timeout(PATIENCE):
                    await writable.wait()
            async with self._turns.step(tenant):
                if writable.is_set():
                    if (frame := next_frame()) is not None:
                        await self.send(frame)
                    return

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


class PatientProtocol(WebSocketsSansIOProtocol):
    """Closes after the peer, or after `close_timeout` seconds, when a frame is refused.

    A connection that is closed while the peer still sends is reset, and a reset may overtake
    the close frame that says why (RFC 6455, 7.1.1).
    """

    def handle_connect(self, event: Request) -> None:
        """Bound the frames of MQTT before the first one comes, from somebody unknown.

        No pings beside those of MQTT: paho's answers break RFC 6455 (5.1), and end the connection.
        """
        if event.path.partition("?")[0] == WS_PATH:
            self.conn.max_message_size = LARGEST
            self.ping_interval = None
        super().handle_connect(event)

    async def run_asgi(self) -> None:
        """Let the application know when the client does not keep up."""
        self.scope["state"][WRITABLE] = self.writable
        await super().run_asgi()

    def handle_parser_exception(self) -> None:
        """Say why once; whatever else arrives is dropped by the parser."""
        if self.close_timer is not None or self.conn.close_sent is None:
            return
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
