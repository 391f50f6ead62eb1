"""`/websocket`: one socket from its opening to its end."""

from typing import Any

from litestar import WebSocket, websocket
from litestar.di import NamedDependency
from litestar.exceptions import WebSocketDisconnect

from libs.common.errors import ThingwayError
from libs.common.http import principal_of
from libs.common.http.guards import users
from libs.common.identity import TOKEN_HEADER
from libs.common.identity.grants import GrantReader
from libs.common.identity.tokens import access_token_key
from services.management.live.closing import MALFORMED, TRY_AGAIN, Closer, Turns
from services.management.live.frames import BadFrame, Follow, read_frame
from services.management.live.hub import Hub
from services.management.live.service import Subscriptions
from services.management.live.subscriber import Subscriber


@websocket("/websocket", guards=[users])
async def live(
    socket: WebSocket[Any, Any, Any],
    hub: NamedDependency[Hub],
    subscriptions: NamedDependency[Subscriptions],
    grants: NamedDependency[GrantReader],
    turns: NamedDependency[Turns],
) -> None:
    """Push what changes until either side ends it; what ends it here has a reason."""
    principal = principal_of(socket)
    closer = Closer(socket, turns)
    subscriber = Subscriber(
        principal,
        access_token_key(socket.headers.get(TOKEN_HEADER, "")),
        await grants.of(principal),
        closer,
    )
    await socket.accept()
    hub.enter(subscriber)
    try:
        await _read(closer, subscriber, subscriptions)
    finally:
        subscriptions.leave(subscriber)


async def _read(closer: Closer, subscriber: Subscriber, subscriptions: Subscriptions) -> None:
    """Do what the client says until it leaves, also after nonsense has begun the closing."""
    while True:
        try:
            text = await closer.socket.receive_data(mode="text")
            async with subscriptions.turns.step(subscriber.principal.tenant):
                said = read_frame(text)
            if isinstance(said, frozenset):
                await subscriptions.subscribe(subscriber, said)
            elif isinstance(said, Follow):
                await subscriptions.follow(subscriber, said.pattern)
                await closer.send(said.text)
            elif said is not None:
                await closer.send(said)
        except WebSocketDisconnect:
            return
        except BadFrame as error:
            subscriber.close(MALFORMED, str(error))
        except ThingwayError as error:
            subscriber.close(TRY_AGAIN, error.text)
