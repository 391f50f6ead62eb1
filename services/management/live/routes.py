"""`/websocket`: one socket from its opening to its end."""

import asyncio
import contextlib
from typing import Any

from litestar import WebSocket, websocket
from litestar.di import NamedDependency
from litestar.exceptions import WebSocketDisconnect

from libs.common.errors import ThingwayError
from libs.common.http import principal_of
from libs.common.http.guards import users
from libs.common.identity.grants import GrantReader
from services.management.live.frames import BadFrame, read_frame
from services.management.live.hub import Hub
from services.management.live.keys import Subscriptions
from services.management.live.subscriber import Subscriber

TOKEN_HEADER = "x-thingway-token"  # noqa: S105 - the name of a field
"""The SHA-256 of the caller's token; the gateway sets it."""
MALFORMED = 1007
TRY_AGAIN = 1013


@websocket("/websocket", guards=[users])
async def live(
    socket: WebSocket[Any, Any, Any],
    hub: NamedDependency[Hub],
    subscriptions: NamedDependency[Subscriptions],
    grants: NamedDependency[GrantReader],
) -> None:
    """Push what changes until either side ends it; what ends it here has a reason."""
    principal = principal_of(socket)
    ended: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()

    def close(code: int, reason: str) -> None:
        if not ended.done():
            ended.set_result((code, reason))

    subscriber = Subscriber(
        principal,
        socket.headers.get(TOKEN_HEADER, ""),
        await grants.of(principal),
        lambda text: socket.send_data(text, mode="text"),
        close,
    )
    await socket.accept()
    hub.enter(subscriber)
    reading = asyncio.ensure_future(_read(socket, subscriber, subscriptions))
    either: tuple[asyncio.Future[Any], ...] = (reading, ended)
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            reading.cancel()
            code, reason = ended.result()
            with contextlib.suppress(WebSocketDisconnect):
                await socket.close(code=code, reason=reason)
    finally:
        hub.leave(subscriber)
        subscriber.stop()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _read(
    socket: WebSocket[Any, Any, Any], subscriber: Subscriber, subscriptions: Subscriptions
) -> None:
    """Do what the client says until it leaves or says nonsense."""
    while True:
        try:
            said = read_frame(await socket.receive_data(mode="text"))
            if isinstance(said, frozenset):
                await subscriptions.subscribe(subscriber, said)
            elif said is not None:
                await socket.send_data(said, mode="text")
        except WebSocketDisconnect:
            return
        except BadFrame as error:
            subscriber.close(MALFORMED, str(error)[:120])
            return
        except ThingwayError as error:
            subscriber.close(TRY_AGAIN, error.text[:120])
            return
