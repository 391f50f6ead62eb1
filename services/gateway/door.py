"""The outermost application: every request comes through here.

Requests of the routing table are let in, limited and passed on, in plain ASGI: a
framework's routing and decoding would cost more than the whole exchange. All others are
the gateway's own pages, which are an ordinary Litestar application.
"""

import asyncio
import time
from dataclasses import dataclass

from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from libs.common.errors import ThingwayError, TooManyRequests
from libs.common.http.request import REQUEST_ID, new_request_id
from services.gateway.access.addresses import TrustedProxies, peer_of
from services.gateway.access.credentials import take_query_token
from services.gateway.access.gatekeeper import Gatekeeper
from services.gateway.metrics import Metrics
from services.gateway.proxy.body import ClientGone, RequestBody
from services.gateway.proxy.disconnect import DisconnectWatch
from services.gateway.proxy.forward import Exchange, Forwarder
from services.gateway.refusal import HeaderTooLarge, refuse
from services.gateway.routes import Route, RouteTable
from services.gateway.tracing import Tracing

UNLIMITED_PAGES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Pages that answer also without Redis."""
CLIENT_CLOSED = 499
"""How an exchange is counted whose client went away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """The ASGI application of the gateway."""

    routes: RouteTable
    gatekeeper: Gatekeeper
    forwarder: Forwarder
    proxies: TrustedProxies
    pages: ASGIApp
    metrics: Metrics
    tracing: Tracing
    max_body: int
    max_header: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the life of the process."""
        if scope["type"] != "http":
            await self.pages(scope, receive, send)
            return
        route = self.routes.find(scope["raw_path"])
        if route is None:
            await self._page(scope, receive, send)
        elif self.tracing.on:
            with self.tracing.span(scope["method"], route.name, scope["headers"]):
                await self._proxied(route, scope, receive, send)
        else:
            await self._proxied(route, scope, receive, send)

    async def _proxied(self, route: Route, scope: HTTPScope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        exchange = Exchange(route, scope, RequestBody(receive, self.max_body), new_request_id())
        watch = DisconnectWatch(receive, exchange.body)
        try:
            status = await self._exchange(exchange, send)
        except ClientGone:
            status = CLIENT_CLOSED
        except asyncio.CancelledError:
            if not watch.gone:
                raise
            status = CLIENT_CLOSED
        finally:
            watch.stop()
        self.metrics.request(route.name, route.upstream, status, time.perf_counter() - started)

    async def _exchange(self, exchange: Exchange, send: Send) -> int:
        """Answer the exchange, with a refusal if need be; return the status."""
        try:
            await self._admit(exchange)
            return await self.forwarder.forward(exchange, send)
        except ThingwayError as error:
            if isinstance(error, TooManyRequests):
                self.metrics.limited(exchange.route.name)
            if not exchange.answered:
                await refuse(send, error, exchange)
            return error.status

    async def _admit(self, exchange: Exchange) -> None:
        scope = exchange.scope
        headers = dict(scope["headers"])
        _check_size(scope["headers"], self.max_header)
        exchange.body.declare(headers)
        exchange.origin = self.proxies.origin(peer_of(scope, headers))
        token, exchange.query = take_query_token(scope["query_string"])
        exchange.principal = await self.gatekeeper.admit(
            exchange.route,
            scope["raw_path"],
            exchange.origin.limit_key,
            headers.get(b"authorization"),
            token,
        )

    async def _page(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """Show a page of the gateway itself, or its 404."""
        scope[REQUEST_ID] = request_id = new_request_id()
