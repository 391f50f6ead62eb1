"""The outermost ASGI application, which handles every request.

Requests for services are admitted, limited and forwarded in plain ASGI, because the routing and
decoding of a framework would cost more than the whole exchange. All other requests are for the
gateway's own pages, which are a Litestar application.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send
from opentelemetry.trace import SpanKind

from libs.common.errors import (
    INTERNAL_ERROR_MESSAGE,
    Forbidden,
    HeaderTooLarge,
    ThingwayError,
    TooManyRequests,
)
from libs.common.http.request import (
    REQUEST_ID_HEADER,
    REQUEST_ID_KEY,
    assign_request_id,
    log_failure,
    log_rejection,
    new_request_id,
    split_query_token,
)
from libs.common.limits.tenants import HeldSlots
from libs.common.telemetry.tracing import TRACE_HEADER, begin_trace, mark_failed
from services.gateway.access.addresses import TrustedProxies
from services.gateway.access.cross_origin import AllowedOrigins, is_preflight
from services.gateway.access.gatekeeper import (
    CERTIFICATE_STATE_KEY,
    MAX_ADMISSION_SECONDS,
    RequestAdmission,
    redis_unavailable_error,
)
from services.gateway.concurrency import ConcurrencyLimiter, principal_key
from services.gateway.connections import AddressConnections
from services.gateway.metrics import Metrics
from services.gateway.proxy.body import ClientDisconnected, RequestBody
from services.gateway.proxy.forward import Exchange, Forwarder, RequestWatch, send_error
from services.gateway.rates import Tarpit
from services.gateway.routes import Route, RouteTable
from services.gateway.tunnel import Tunnels

log = logging.getLogger(__name__)

PROBE_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
"""Pages without a rate limit, which answer even without Redis."""
FIRST_FAILED_STATUS = 400
"""The lowest status of a failed request."""
PAGES_LOG_NAME = "page"
"""The route name in logs for the gateway's own pages."""
CLIENT_CLOSED_STATUS = 499
"""The metrics status of an exchange whose client closed the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The ASGI application of the gateway."""

    routes: RouteTable
    gatekeeper: RequestAdmission
    concurrency: ConcurrencyLimiter
    tarpit: Tarpit
    forwarder: Forwarder
    proxies: TrustedProxies
    cross_origin: AllowedOrigins
    pages: ASGIApp
    connections: AddressConnections
    """Counts the connections of the server."""
    tunnels: Tunnels
    """Handles WebSocket clients, which the server passes on before this application."""
    metrics: Metrics
    headers: list[tuple[str, str]]
    """Header fields that the server adds to every answer."""
    traced: bool
    """Whether spans are exported."""
    max_body: int
    max_header: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or run the lifespan of the process."""
        if scope["type"] != ScopeType.HTTP:
            await self.pages(scope, receive, send)
            return
        if self.cross_origin.on:
            send = self.cross_origin.add_headers_on_send(scope, send)
        route = self.routes.find(scope["raw_path"])
        if scope["method"] == "OPTIONS" and is_preflight(headers := dict(scope["headers"])):
            await self._answer_preflight(headers, scope, receive, send)
        elif route is None:
            await self._answer_page(scope, receive, send)
        elif self.traced:
            await self._forward_traced(route, scope, receive, send)
        else:
            await self._forward(route, scope, receive, send)

    async def _forward_traced(
        self, route: Route, scope: HTTPScope, receive: Receive, send: Send
    ) -> None:
        remote = dict(scope["headers"]).get(TRACE_HEADER.encode(), b"").decode("latin-1")
        with begin_trace(f"{scope['method']} {route.name}", SpanKind.SERVER, remote) as span:
            status = await self._forward(route, scope, receive, send)
            span.set_attribute("http.response.status_code", status)
            if status >= ThingwayError.status:
                mark_failed(span, str(status))

    async def _forward(self, route: Route, scope: HTTPScope, receive: Receive, send: Send) -> int:
        """Forward a request to its service, count the result, and return the status."""
        started = time.perf_counter()
        headers = dict(scope["headers"])
        request_id = _assign_new_request_id(scope)
        body = RequestBody(receive, headers, route.max_body or self.max_body)
        exchange = Exchange(
            route=route,
            scope=scope,
            headers=headers,
            origin=self.proxies.find_origin(scope, headers),
            body=body,
            watch=RequestWatch(receive, body),
            request_id=request_id,
        )
        try:
            status = await self._run_exchange(exchange, send)
        except ClientDisconnected:
            status = CLIENT_CLOSED_STATUS
        finally:
            exchange.watch.stop()
        self.metrics.count_request(
            route.name, route.upstream, status, time.perf_counter() - started
        )
        return status

    async def _run_exchange(self, exchange: Exchange, send: Send) -> int:
        try:
            await self._admit(exchange)
            slots = self._occupy_slots(exchange)
            try:
                status = await self.forwarder.forward(exchange, send)
                if status >= FIRST_FAILED_STATUS:
                    log_failure(status, exchange.scope["method"], exchange.route.name)
                return status
            finally:
                slots.release()
        except ThingwayError as error:
            error_to_answer = error
        except asyncio.CancelledError as cancelled:
            error_to_answer = exchange.watch.find_error(cancelled)
        except ClientDisconnected:
            raise
        except Exception:
            log.exception("request %s failed", exchange.request_id)
            error_to_answer = ThingwayError(INTERNAL_ERROR_MESSAGE)
        if isinstance(error_to_answer, TooManyRequests):
            self.metrics.count_limited(exchange.route.name)
        if not exchange.answered:
            log_rejection(error_to_answer, exchange.scope["method"], exchange.route.name)
            exchange.watch.stop()
            if isinstance(error_to_answer, TooManyRequests):
                await self.tarpit.delay_rejection(_rejection_key(exchange))
            await send_error(
                send,
                error_to_answer,
                path=exchange.path.decode("latin-1"),
                request_id=exchange.request_id,
                credential=exchange.route.credential,
                body=exchange.body,
            )
        return error_to_answer.status

    async def _admit(self, exchange: Exchange) -> None:
        scope = exchange.scope
        self._check_header_size(scope)
        exchange.body.require_acceptable()
        exchange.watch.set_deadline(MAX_ADMISSION_SECONDS, redis_unavailable_error)
        token, exchange.query = split_query_token(scope["query_string"])
        exchange.principal = await self.gatekeeper.admit(
            exchange.route,
            exchange.path,
            exchange.origin,
            exchange.headers.get(b"authorization"),
            token if exchange.route.takes_query_token else None,
            scope["state"].get(CERTIFICATE_STATE_KEY),
        )

    def _occupy_slots(self, exchange: Exchange) -> HeldSlots:
        """Occupy the slots of the request; raise `TooManyRequests`."""
        route, principal = exchange.route, exchange.principal
        if principal is None:
            return self.concurrency.acquire_anonymous(
                route, exchange.path, exchange.origin.rate_limit_key
            )
        exchange.wait = route.read_poll_seconds(exchange.path, exchange.query)
        return self.concurrency.acquire("polls" if exchange.wait else "requests", principal)

    def _check_header_size(self, scope: HTTPScope) -> None:
        size = sum([len(name) + len(value) for name, value in scope["headers"]])
        if size + len(scope["raw_path"]) + len(scope["query_string"]) > self.max_header:
            raise HeaderTooLarge(f"the header is larger than {self.max_header} bytes")

    async def _answer_preflight(
        self, headers: dict[bytes, bytes], scope: HTTPScope, receive: Receive, send: Send
    ) -> None:
        """Answer a preflight request of a browser, which has no credential."""
        origin = headers[b"origin"]
        error_to_answer = None
        if not self.cross_origin.allows(origin):
            error_to_answer = Forbidden(
                f"pages of {origin.decode('latin-1'):.100} may not call this API"
            )
        if await self._admit_unforwarded(headers, scope, receive, send, error_to_answer):
            fields = self.cross_origin.build_preflight_headers(headers)
            send = _add_request_id_on_send(scope, send)
            await send({"type": "http.response.start", "status": 204, "headers": fields})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answer_page(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """Answer with a page of the gateway, or its 404."""
        headers = dict(scope["headers"])
        if await self._admit_unforwarded(headers, scope, receive, send):
            await self.pages(scope, receive, _add_request_id_on_send(scope, send))

    async def _admit_unforwarded(
        self,
        headers: dict[bytes, bytes],
        scope: HTTPScope,
        receive: Receive,
        send: Send,
        error_to_answer: ThingwayError | None = None,
    ) -> bool:
        """Return whether a request that the gateway answers itself is admitted, else reject it."""
        request_id = _assign_new_request_id(scope)
        body = RequestBody(receive, headers, self.max_body)
        try:
            self._check_header_size(scope)
            body.require_acceptable()
            if scope["path"] not in PROBE_PATHS:
                await self.gatekeeper.admit_page(
                    self.proxies.find_origin(scope, headers).rate_limit_key
                )
            if error_to_answer is not None:
                raise error_to_answer
        except ThingwayError as error:
            log_rejection(error, scope["method"], PAGES_LOG_NAME)
            await send_error(send, error, path=scope["path"], request_id=request_id, body=body)
            return False
        return True


def _assign_new_request_id(scope: HTTPScope) -> str:
    """Assign a new request id, also if the client sent one; return it."""
    extra: dict[str, Any] = scope  # type: ignore[assignment]
    extra[REQUEST_ID_KEY] = new_request_id()
    return assign_request_id(scope)


def _add_request_id_on_send(scope: HTTPScope, send: Send) -> Send:
    """Return a `send` that adds the request id to the answer."""
    field = (REQUEST_ID_HEADER.encode(), assign_request_id(scope).encode())

    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], field]
        await send(message)

    return add


def _rejection_key(exchange: Exchange) -> str:
    """Return the key by which rejections are counted."""
    principal = exchange.principal
    return exchange.origin.rate_limit_key if principal is None else principal_key(principal)
