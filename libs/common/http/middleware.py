"""The middleware of a service: trace, principal, and tenants' turns.

A request takes its turn when its body is complete. An operation that waits on purpose (for a
device, a run, or other work with its own turns) declares `waits=True` and occupies no worker: the
gateway limits such requests per tenant. A large answer occupies a slot for large answers instead of
a worker, so that slow readers do not delay other requests.
"""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send
from opentelemetry.trace import SpanKind

from libs.common.envelope import encode_error, error_headers
from libs.common.errors import ThingwayError, Unauthenticated
from libs.common.http.request import (
    PRINCIPAL_KEY,
    REQUEST_SCOPES,
    assign_request_id,
    log_rejection,
    read_address,
)
from libs.common.http.streaming import PIECE_BYTES
from libs.common.identity import PRINCIPAL_HEADER, HeaderVerifier, Principal
from libs.common.scheduling import Caps, FairScheduler, LaneFull
from libs.common.telemetry.logs import add_log_fields
from libs.common.telemetry.tracing import TRACE_HEADER, continue_trace

CONCURRENT_REQUESTS, CONCURRENT_REQUESTS_PER_PRINCIPAL = 24, 8
"""Maximum concurrent requests of a process and of a principal. A single tenant gets at most half of
the process's requests, so that it does not use all connections to MongoDB."""
MAX_CONCURRENT_LARGE_ANSWERS = 16
"""Large answers that a process sends concurrently, which limits their memory."""
LARGE_BODY_BYTES = 256 * 1024
"""Bytes above which bodies of a tenant are read one by one, and answers are sent a few at a time,
because parts of each are in memory."""
MAX_CONCURRENT_LARGE_BODIES = 8
"""Large bodies of a process that are read concurrently, one per tenant or, without login, per
address."""
MAX_WAITING_REQUESTS, MAX_WAITING_ANSWERS = 10_000, 32
"""Waiting requests and large answers of a tenant; the gateway admits fewer requests."""


class ConcurrencyLimits:
    """The concurrency limits of a process."""

    def __init__(self) -> None:
        maximum, bodies = (
            Caps(CONCURRENT_REQUESTS, CONCURRENT_REQUESTS_PER_PRINCIPAL),
            partial(Caps, sub=1),
        )
        self.requests = FairScheduler(
            "requests", CONCURRENT_REQUESTS, items=MAX_WAITING_REQUESTS, caps=lambda _: maximum
        )
        self.answers = FairScheduler(
            "large answers",
            MAX_CONCURRENT_LARGE_ANSWERS,
            items=MAX_WAITING_ANSWERS,
            caps=lambda _: maximum,
        )
        self.bodies = FairScheduler(
            "large bodies",
            MAX_CONCURRENT_LARGE_BODIES,
            items=MAX_WAITING_REQUESTS,
            caps=lambda lane: bodies(1 if lane else MAX_CONCURRENT_LARGE_BODIES),
        )

    async def serve(self, app: ASGIApp, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """Run a request when it is its turn; raise `LaneFull` if too many wait."""
        async with _RequestSlots(self, scope, receive, send) as request:
            if request.complete:
                await request.take_turn()
            await app(scope, request.receive, request.send)


class _RequestSlots(AsyncExitStack):
    """The slots of a request, which holds a worker until it ends or a large answer begins."""

    def __init__(
        self, turns: ConcurrencyLimits, scope: HTTPScope, receive: Receive, send: Send
    ) -> None:
        super().__init__()
        principal: Principal | None = scope.get(PRINCIPAL_KEY)  # type: ignore[assignment]
        self._lane = "" if principal is None else principal.tenant
        self._sub = (
            read_address(scope) if principal is None else (principal.kind, principal.subject)
        )
        self._turns, self._receive, self._send = turns, receive, send
        self._waits = scope["route_handler"].opt.get("waits", False)
        self._turn = AsyncExitStack()
        self.push_async_exit(self._turn)
        self._size, self._large = 0, False
        self.complete = not _has_body(scope)

    async def take_turn(self) -> None:
        if not self._waits:
            slot = self._turns.requests.slot(self._lane, sub=self._sub)
            await self._turn.enter_async_context(slot)

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request" and not self.complete:
            before, self._size = self._size, self._size + len(message["body"])
            if before <= LARGE_BODY_BYTES < self._size:
                slot = self._turns.bodies.slot(self._lane, sub=self._sub)
                await self.enter_async_context(slot)
            if not message["more_body"]:
                self.complete = True
                await self.take_turn()
        return message

    async def send(self, message: Any) -> None:
        more = message.get("more_body", False)
        if not more and len(message.get("body", b"")) <= LARGE_BODY_BYTES:
            await self._send(message)
            return
        if not self._large:
            self._large = True
            slot = self._turns.answers.slot(self._lane, sub=self._sub)
            await self.enter_async_context(slot)
            await self._turn.aclose()
        for piece in _pieces(message):
            await self._send(piece)


def _pieces(message: Any) -> Iterator[Any]:
    content = message["body"]
    for start in range(0, len(content) or 1, PIECE_BYTES):
        end = start + PIECE_BYTES
        more = message["more_body"] or end < len(content)
        yield {**message, "body": content[start:end], "more_body": more}


def _has_body(scope: HTTPScope) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


PUBLIC_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/schema/openapi.json"})
"""Paths that need no principal, for probes and the gateway's documentation page."""


class RequestContext:
    """Authenticates the callers of requests.

    Rejects requests without a valid principal header, except requests without this header to
    public paths.
    """

    def __init__(
        self,
        app: ASGIApp,
        verifier: HeaderVerifier,
        public_paths: frozenset[str],
        turns: ConcurrencyLimits,
    ) -> None:
        self._app = app
        self._turns = turns
        self._verifier = verifier
        self._public_paths = PUBLIC_PATHS | public_paths
        self._public_prefixes = tuple(path for path in public_paths if path.endswith("/"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate the caller, then run the application in the caller's trace and turn."""
        if scope["type"] not in REQUEST_SCOPES:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        extra: dict[str, object] = scope  # type: ignore[assignment]
        value = headers.get(PRINCIPAL_HEADER.encode())
        if value is not None or not self._is_public_path(scope["path"]):
            try:
                caller = self._verifier.verify(value.decode("latin-1") if value else None)
            except Unauthenticated as error:
                if scope["type"] == ScopeType.WEBSOCKET:
                    await _reject_websocket(receive, send)
                else:
                    await _reject(error, scope, send)
                return
            extra[PRINCIPAL_KEY] = caller
            add_log_fields(tenant=caller.tenant)
        await self._serve_traced(scope, receive, send, headers)

    def _is_public_path(self, path: str) -> bool:
        return path in self._public_paths or path.startswith(self._public_prefixes)

    async def _serve_traced(
        self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes]
    ) -> None:
        parent = headers.get(TRACE_HEADER.encode())
        if parent is None:
            await self._serve(scope, receive, send)
            return
        method, template = scope.get("method", "GET"), scope.get("path_template", "")
        with continue_trace(
            f"{method} {template}".strip(), SpanKind.SERVER, parent.decode("latin-1")
        ):
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.WEBSOCKET or scope["path"] in PUBLIC_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            await self._turns.serve(self._app, scope, receive, send)
        except LaneFull as error:
            await _reject(error, scope, send)


async def _reject_websocket(receive: Receive, send: Send) -> None:
    """Close a WebSocket before it opens, which the server answers with 403."""
    await receive()
    closing: Message = {"type": "websocket.close", "code": 1008, "reason": ""}
    await send(closing)


async def _reject(error: ThingwayError, scope: HTTPScope, send: Send) -> None:
    log_rejection(error, scope["method"], scope.get("path_template", ""))
    body = encode_error(error, path=scope["path"], request_id=assign_request_id(scope))
    start: Message = {
        "type": "http.response.start",
        "status": error.status,
        "headers": [
            (b"content-type", b"application/json"),
            *((name.encode(), value.encode()) for name, value in error_headers(error).items()),
        ],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})
