"""The outermost middleware of a service: trace and principal."""

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send
from opentelemetry.trace import SpanKind

from libs.common.envelope import encode_error, error_headers
from libs.common.errors import ThingwayError, Unauthenticated
from libs.common.http.refusals import log_refusal
from libs.common.http.request import PRINCIPAL, REQUESTS, identify
from libs.common.http.turns import Turns
from libs.common.identity import PRINCIPAL_HEADER, HeaderVerifier
from libs.common.scheduling import LaneFull
from libs.common.telemetry.logs import name_lines
from libs.common.telemetry.tracing import TRACE, continued

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/schema/openapi.json"})
"""Answered without a principal, to probes and to the gateway's documentation page."""


class RequestContext:
    """Gives a request its proven caller, and refuses it when there is none."""

    def __init__(
        self, app: ASGIApp, verifier: HeaderVerifier, open_paths: frozenset[str], turns: Turns
    ) -> None:
        self._app = app
        self._turns = turns
        self._verifier = verifier
        self._open_paths = OPEN_PATHS | open_paths
        self._open_prefixes = tuple(path for path in open_paths if path.endswith("/"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application inside the context."""
        if scope["type"] not in REQUESTS:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        extra: dict[str, object] = scope  # type: ignore[assignment]
        value = headers.get(PRINCIPAL_HEADER.encode())
        if value is not None or not self._is_open(scope["path"]):
            try:
                caller = self._verifier.verify(value.decode("latin-1") if value else None)
            except Unauthenticated as error:
                if scope["type"] == ScopeType.WEBSOCKET:
                    await _shut(receive, send)
                else:
                    await _refuse(error, scope, send)
                return
            extra[PRINCIPAL] = caller
            name_lines(tenant=caller.tenant)
        await self._traced(scope, receive, send, headers)

    def _is_open(self, path: str) -> bool:
        return path in self._open_paths or path.startswith(self._open_prefixes)

    async def _traced(
        self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes]
    ) -> None:
        parent = headers.get(TRACE.encode())
        if parent is None:
            await self._serve(scope, receive, send)
            return
        method, template = scope.get("method", "GET"), scope.get("path_template", "")
        with continued(f"{method} {template}".strip(), SpanKind.SERVER, parent.decode("latin-1")):
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.WEBSOCKET or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            await self._turns.serve(self._app, scope, receive, send)
        except LaneFull as error:
            await _refuse(error, scope, send)


async def _shut(receive: Receive, send: Send) -> None:
    """Close a WebSocket before it opens, which the server answers with 403."""
    await receive()
    closing: Message = {"type": "websocket.close", "code": 1008, "reason": ""}
    await send(closing)


async def _refuse(error: ThingwayError, scope: HTTPScope, send: Send) -> None:
    log_refusal(error, scope["method"], scope.get("path_template", ""))
    body = encode_error(error, path=scope["path"], request_id=identify(scope))
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
