"""Sending on WebSockets, and closing them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from litestar import WebSocket
from litestar.exceptions import WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from libs.common.contracts.mqtt import MQTT_WEBSOCKET_PATH
from libs.common.scheduling import FairScheduler
from services.management.live.packets import MAX_PACKET_BYTES

MALFORMED, POLICY, TRY_AGAIN = 1007, 1008, 1013
"""Close codes (RFC 6455, 7.4.1, and its registry): invalid data, policy violation, try again
later."""
SLOW_CLIENT_TIMEOUT_SECONDS = 30.0
"""Seconds without reading after which a client is disconnected."""
MAX_REASON_CHARACTERS = 120
"""Maximum characters of a close reason, which has at most 123 bytes (RFC 6455, 5.5.1)."""
WRITABLE_STATE_KEY = "writable"
"""Key in the state of a connection: the event that is set while its client reads."""
STEPS_PER_ITERATION = 16
"""Maximum steps of all sockets per iteration of the event loop once the time slice is used up. A
step is a frame that is received or sent. A single tenant gets half of the steps."""
MAX_WAITING_STEPS_PER_TENANT = 100_000
"""Maximum waiting steps of a tenant; each socket has at most two."""
TIME_SLICE_SECONDS = 0.005
"""Seconds for which a long job may occupy the event loop."""

Pause = Callable[[], Awaitable[None]]


class SocketTurns:
    """Limits the steps of sockets per iteration of the event loop; tenants take turns."""

    def __init__(self) -> None:
        self._scheduler = FairScheduler(
            "live", STEPS_PER_ITERATION, items=MAX_WAITING_STEPS_PER_TENANT
        )
        self._until = 0.0
        """The time until which steps need no turn; 0 before the first step of a loop iteration."""

    @asynccontextmanager
    async def step(self, tenant: str) -> AsyncIterator[None]:
        """Run a step at once; if the time slice is used up, wait for the tenant's turn first."""
        now = time.monotonic()
        if not self._until:
            self._until = now + TIME_SLICE_SECONDS
            asyncio.get_running_loop().call_soon(self._end_iteration)
        if now < self._until:
            yield
            return
        async with self._scheduler.slot(tenant):
            yield
            await asyncio.sleep(0)

    def _end_iteration(self) -> None:
        self._until = 0.0


def create_pause() -> Pause:
    """Return a function for long jobs: once a time slice is used up, it lets other tasks run."""
    until = time.monotonic() + TIME_SLICE_SECONDS

    async def pause() -> None:
        nonlocal until
        if time.monotonic() >= until:
            await asyncio.sleep(0)
            until = time.monotonic() + TIME_SLICE_SECONDS

    return pause


class LiveSocket:
    """Sends on a socket, and closes it once, with a code and a reason."""

    __slots__ = ("_closing", "_turns", "socket")

    def __init__(self, socket: WebSocket[Any, Any, Any], turns: SocketTurns) -> None:
        self.socket = socket
        self._turns = turns
        self._closing: asyncio.Task[None] | None = None

    async def send(self, data: str | bytes) -> None:
        """Send a text or binary frame."""
        with suppress(OSError, WebSocketDisconnect):  # the reading task handles the disconnect
            await self.socket.send_data(data, mode="text" if isinstance(data, str) else "binary")

    async def send_next(self, tenant: str, next_frame: Callable[[], str | bytes | None]) -> None:
        """Send the result of `next_frame` when the client reads and its tenant has its turn.

        Nothing is encoded, and no turn is taken, for a client that does not read. Raises
        `TimeoutError` if it does not read for too long.
        """
        writable: asyncio.Event = self.socket.scope["state"][WRITABLE_STATE_KEY]
        while True:
            if not writable.is_set():
                async with asyncio.timeout(SLOW_CLIENT_TIMEOUT_SECONDS):
                    await writable.wait()
            async with self._turns.step(tenant):
                if writable.is_set():
                    if (frame := next_frame()) is not None:
                        await self.send(frame)
                    return

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, if `close` was called."""
        if self._closing is not None:
            with suppress(OSError, WebSocketDisconnect):
                await self._closing

    def close(self, code: int, reason: str) -> None:
        """Close with a code and a reason; may be repeated."""
        if self._closing is None:
            plain = reason.encode("ascii", "replace").decode()[:MAX_REASON_CHARACTERS]
            self._closing = asyncio.ensure_future(self.socket.close(code=code, reason=plain))


class LiveSocketProtocol(WebSocketsSansIOProtocol):
    """Closes after the peer, or after `close_timeout` seconds, if a frame is rejected.

    Closing a connection while the peer still sends resets it, and the reset may overtake the close
    frame with the reason (RFC 6455, 7.1.1).
    """

    def handle_connect(self, event: Request) -> None:
        """Limit the size of MQTT frames before the login.

        Disable WebSocket pings with MQTT: paho's answers violate RFC 6455 (5.1), and end the
        connection.
        """
        if event.path.partition("?")[0] == MQTT_WEBSOCKET_PATH:
            self.conn.max_message_size = MAX_PACKET_BYTES
            self.ping_interval = None
        super().handle_connect(event)

    async def run_asgi(self) -> None:
        """Give the application access to the `writable` event."""
        self.scope["state"][WRITABLE_STATE_KEY] = self.writable
        await super().run_asgi()

    def handle_parser_exception(self) -> None:
        """Send the reason once; the parser drops further data."""
        if self.close_timer is not None or self.conn.close_sent is None:
            return
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
