"""`/websocket`: one socket from its opening to its end."""

import asyncio
from contextlib import suppress
from typing import Any

from litestar import WebSocket, websocket
from litestar.di import NamedDependency
from litestar.exceptions import WebSocketDisconnect

from libs.common.errors import ThingwayError
from libs.common.http import principal_of
from libs.common.http.guards import users
from libs.common.identity import TOKEN_HEADER
from libs.common.identity.grants import GrantReader
from services.management.live.frames import BadFrame, read_frame
from services.management.live.hub import Hub
from services.management.live.service import Subscriptions
from services.management.live.subscriber import Subscriber

MALFORMED = 1007
TRY_AGAIN = 1013
LONGEST_REASON = 120
"""Characters of a close reason, which has at most 123 bytes (RFC 6455, 5.5.1)."""


@websocket("/websocket", guards=[users])
async def live(
    socket: WebSocket[Any, Any, Any],
    hub: NamedDependency[Hub],
    subscriptions: NamedDependency[Subscriptions],
    grants: NamedDependency[GrantReader],
) -> None:
    """Push what changes until either side ends it; what ends it here has a reason."""
    principal = principal_of(socket)
    closer = _Closer(socket)
    subscriber = Subscriber(
        principal,
        socket.headers.get(TOKEN_HEADER, ""),
        await grants.of(principal),
        closer.send,
        closer.close,
    )
    await socket.accept()
    hub.enter(subscriber)
    try:
        await _read(closer, subscriber, subscriptions)
    finally:
        hub.leave(subscriber)
        subscriber.stop()


class _Closer:
    """Sends on a socket, and closes it from anywhere: once, with a code and a reason."""

    __slots__ = ("_closing", "socket")

    def __init__(self, socket: WebSocket[Any, Any, Any]) -> None:
        self.socket = socket
        self._closing: asyncio.Task[None] | None = None

    async def send(self, text: str) -> None:
        with suppress(OSError, WebSocketDisconnect):  # who reads is told that the client has gone
            await self.socket.send_data(text, mode="text")

    def close(self, code: int, reason: str) -> None:
        if self._closing is None:
            plain = reason.encode("ascii", "replace").decode()[:LONGEST_REASON]
            self._closing = asyncio.ensure_future(self.socket.close(code=code, reason=plain))


async def _read(closer: _Closer, subscriber: Subscriber, subscriptions: Subscriptions) -> None:
    """Do what the client says until it leaves, also after nonsense has begun the closing."""
    while True:
        try:
            said = read_frame(await closer.socket.receive_data(mode="text"))
            if isinstance(said, frozenset):
                await subscriptions.subscribe(subscriber, said)
            elif said is not None:
                await closer.send(said)
        except WebSocketDisconnect:
            return
        except BadFrame as error:
            subscriber.close(MALFORMED, str(error))
        except ThingwayError as error:
            subscriber.close(TRY_AGAIN, error.text)
