"""Exchanges: a request to a service and its answer, both streamed."""

from collections.abc import Mapping
from dataclasses import dataclass

from litestar.types import HTTPScope, Send

from libs.common.errors import Unavailable
from libs.common.http.static import PACKET
from libs.common.identity import PRINCIPAL_HEADER, HeaderSigner, Principal
from libs.common.telemetry.tracing import TRACE, current_trace
from services.gateway.access.addresses import Origin
from services.gateway.proxy.body import RequestBody
from services.gateway.proxy.coding import encoder_for
from services.gateway.proxy.headers import to_client, to_service
from services.gateway.proxy.refusal import slow_client
from services.gateway.proxy.watch import Watch
from services.gateway.routes import Route
from services.gateway.upstream.connection import Answer, Field
from services.gateway.upstream.service import Request, Upstream

_PRINCIPAL = PRINCIPAL_HEADER.encode()


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request to a service, and its state."""

    route: Route
    scope: HTTPScope
    headers: dict[bytes, bytes]
    """The last field of each name."""
    origin: Origin
    body: RequestBody
    watch: Watch
    request_id: str
    query: bytes = b""
    """The query without the access token."""
    wait: float = 0.0
    """Maximum seconds of a long poll; 0 for other requests."""
    principal: Principal | None = None
    answered: bool = False
    """Whether the head of the answer was sent; a later failure only closes the connection."""

    @property
    def path(self) -> bytes:
        """Return the path that the client sent."""
        return self.scope["raw_path"]

    @property
    def target(self) -> str:
        """Return path and query for the service."""
        path = self.route.target(self.path)
        return (path + b"?" + self.query if self.query else path).decode("latin-1")


@dataclass(frozen=True)
class Forwarder:
    """Sends exchanges to services; `traced` if spans are exported."""

    upstreams: Mapping[str, Upstream]
    signer: HeaderSigner
    timeout: float
    traced: bool

    async def forward(self, exchange: Exchange, send: Send) -> int:
        """Run the exchange and return the status.

        Raises `ThingwayError` if the service fails, and `ClientGone` if the client closes the
        connection.
        """
        upstream = self.upstreams.get(exchange.route.upstream)
        if upstream is None:
            raise Unavailable(f"the service {exchange.route.upstream} is not part of this platform")
        body = exchange.body
        taken = upstream.acquire_slot(poll=exchange.wait > 0)
        try:
            exchange.watch.limit(
                self.timeout + exchange.wait,
                lambda: slow_client() if body.awaited else upstream.timed_out(),
            )
            request = Request(
                exchange.scope["method"],
                exchange.target,
                self._fields(exchange),
                await body.start() if body.exists else None,
                body.length,
            )
            connection, answer = await upstream.begin(request)
            try:
                await self._answer(exchange, upstream, answer, send)
            finally:
                upstream.end(connection)
            return answer.status
        finally:
            taken.release()

    async def _answer(
        self, exchange: Exchange, upstream: Upstream, answer: Answer, send: Send
    ) -> None:
        status, request_id, watch = answer.status, exchange.request_id, exchange.watch
        fields = to_client(answer.fields, status=status, request_id=request_id)
        encode = None
        if answer.waiting > PACKET or not answer.complete:
            encode = encoder_for(fields, exchange.headers, exchange.scope["method"])
        exchange.answered = True
        await send({"type": "http.response.start", "status": status, "headers": fields})
        more = True
        while more:
            if not answer.complete:
                watch.limit(self.timeout, upstream.timed_out)
            part, more = await upstream.part(answer)
            if more:
                watch.limit(self.timeout, slow_client)
            if encode is not None:
                part = encode(part, more)
            await send({"type": "http.response.body", "body": part, "more_body": more})

    def _fields(self, exchange: Exchange) -> list[Field]:
        fields = to_service(
            exchange.scope["headers"], origin=exchange.origin, request_id=exchange.request_id
        )
        if exchange.principal is not None:
            fields.append((_PRINCIPAL, self.signer.sign(exchange.principal).encode()))
        if exchange.route.passes_login and (login := exchange.headers.get(b"authorization")):
            fields.append((b"authorization", login))
        if self.traced and (trace := current_trace()):
            fields.append((TRACE.encode(), trace.encode()))
        return fields
