"""Small messages of devices over HTTP, answered without the framework.

Routing and decoding by the framework cost more than all else that a small message needs. Answers
are those of the operations in `http_ingest`, which serve all other requests.
"""

from typing import Any, NamedTuple

import msgspec
from litestar import Request
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from libs.common.envelope import Success
from libs.common.errors import Unauthenticated
from libs.common.http.failures import handle_exception
from libs.common.http.request import PRINCIPAL_KEY, assign_request_id
from libs.common.identity import PRINCIPAL_HEADER, HeaderVerifier, Principal, PrincipalKind
from libs.common.telemetry.logs import add_log_fields
from libs.common.telemetry.tracing import TRACE_HEADER
from services.device.telemetry.http_ingest import HttpIngestService

MAX_DIRECT_BODY_BYTES = 4096
"""Maximum bytes of a body, because the answer to a larger one may itself be large."""
CHANNELS = frozenset({"report", "event", "reply"})

_PATH_PREFIX = ("", "ingest", "v1")
_PRINCIPAL, _TRACE = PRINCIPAL_HEADER.encode(), TRACE_HEADER.encode()
_encode_json = msgspec.json.Encoder().encode


class _RequestHead(NamedTuple):
    principal: Principal
    sn: str
    channel: str


class DirectIngest:
    """Answers small messages of devices, and passes other requests to `app`."""

    def __init__(self, app: ASGIApp, edge: HttpIngestService, verifier: HeaderVerifier) -> None:
        self.app = app
        self._edge = edge
        self._verifier = verifier

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a small message; pass other requests, and the lifespan, to `app`."""
        message = self._read_head(scope) if scope["type"] == ScopeType.HTTP else None
        if message is None:
            await self.app(scope, receive, send)
            return
        request_id = assign_request_id(scope)
        add_log_fields(tenant=message.principal.tenant)
        body, more = b"", True
        while more:
            part: Any = await receive()
            if part["type"] != "http.request":
                return
            body, more = body + part["body"], part["more_body"]
        extra: dict[str, Any] = scope  # type: ignore[assignment]
        extra[PRINCIPAL_KEY] = message.principal
        try:
            accepted = await self._edge.accept(*message, body, wait_until_stored=False)
        except Exception as error:  # noqa: BLE001 - `handle_exception` logs internal errors
            extra["path_template"] = f"/ingest/v1/{{sn}}/{message.channel}"
            request: Request[Any, Any, Any] = Request(scope, receive, send)
            answer = handle_exception(request, error).to_asgi_response(None, request)
            await answer(scope, receive, send)
            return
        content = _encode_json(Success(data=accepted, request_id=request_id))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
        ]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": content, "more_body": False})

    def _read_head(self, scope: HTTPScope) -> _RequestHead | None:
        """Return sender, SN and channel of a small message; None for other requests."""
        *prefix, sn, channel = scope["path"].split("/", 4)
        if tuple(prefix) != _PATH_PREFIX or channel not in CHANNELS or scope["query_string"]:
            return None
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        if (
            scope["method"] != "POST"
            or not length
            or int(length) > MAX_DIRECT_BODY_BYTES
            or _TRACE in headers
        ):
            return None
        try:
            principal = self._verifier.verify(headers.get(_PRINCIPAL, b"").decode("latin-1"))
        except Unauthenticated:
            return None
        return (
            _RequestHead(principal, sn, channel) if principal.kind is PrincipalKind.DEVICE else None
        )
