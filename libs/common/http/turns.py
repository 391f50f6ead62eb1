"""Requests of tenants take turns at the workers of a service.

A request takes its turn when its body is complete. An operation that waits on purpose (for a
device, a run, other work that has its own turns) declares `waits=True` and holds no worker: the
gateway bounds how many of them a tenant has. Neither does a long answer between two of its pieces,
so a slow reader holds none.
"""

from contextlib import AsyncExitStack
from typing import Any

from litestar.types import ASGIApp, HTTPScope, Message, Receive, Send

from libs.common.http.request import PRINCIPAL, address_in
from libs.common.identity import Principal
from libs.common.scheduling import Caps, FairScheduler

WORKERS, OF_PRINCIPAL = 24, 8
"""Requests of a process that are worked on together, and those of one principal. A tenant alone
has half of them, so that it does not use up the connections to MongoDB."""
LARGE_BODY = 256 * 1024
"""Bytes of a body from which on a tenant's requests are read one by one."""
LARGE_BODIES = 8
"""Large bodies of a process, each of another tenant."""
WAITING = 10_000
"""Requests of a tenant that wait; the gateway lets fewer in."""


class Turns:
    """The workers of one process."""

    def __init__(self) -> None:
        most, one = Caps(WORKERS, OF_PRINCIPAL), Caps(1, 1)
        self._requests = FairScheduler("requests", WORKERS, items=WAITING, caps=lambda _: most)
        self._bodies = FairScheduler(
            "large bodies", LARGE_BODIES, items=WAITING, caps=lambda _: one
        )

    async def serve(self, app: ASGIApp, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """Run a request when it is its turn; raise `LaneFull` for one too many."""
        principal: Principal | None = scope.get(PRINCIPAL)  # type: ignore[assignment]
        lane = "" if principal is None else principal.tenant
        sub = address_in(scope) if principal is None else (principal.kind, principal.subject)
        body, turn = AsyncExitStack(), AsyncExitStack()
        size, complete = 0, not _has_body(scope)

        async def take_turn() -> None:
            if not scope["route_handler"].opt.get("waits"):
                await turn.enter_async_context(self._requests.slot(lane, sub=sub))

        async def receive_in_turn() -> Any:
            nonlocal size, complete
            message = await receive()
            if message["type"] == "http.request" and not complete:
                before, size = size, size + len(message["body"])
                if before <= LARGE_BODY < size:
                    await body.enter_async_context(self._bodies.slot(lane))
                if not message["more_body"]:
                    complete = True
                    await take_turn()
            return message

        async def send_in_turn(message: Message) -> None:
            if message["type"] != "http.response.body" or not message["more_body"]:
                await send(message)
                return
            await turn.aclose()
            await send(message)
            await take_turn()

        async with body, turn:
            if complete:
                await take_turn()
            await app(scope, receive_in_turn, send_in_turn)


def _has_body(scope: HTTPScope) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
