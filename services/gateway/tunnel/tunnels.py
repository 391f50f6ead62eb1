"""Tunnels between WebSocket clients and `management`.

A handshake is admitted like a request, except for MQTT, whose login follows later. Afterwards, the
gateway forwards bytes without parsing frames, so that an idle socket costs two transports and no
task.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import metrics
from yarl import URL

from libs.common.contracts.mqtt import WS_PATH
from libs.common.envelope import encode_error, error_headers
from libs.common.errors import (
    OUR_FAULT,
    InvalidInput,
    NotFound,
    ThingwayError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from libs.common.http.request import log_refusal, new_request_id
from libs.common.identity import (
    PRINCIPAL_HEADER,
    TOKEN_HEADER,
    HeaderSigner,
    Kind,
    Principal,
)
from libs.common.identity.tokens import token_hash
from libs.common.limits.usage import HeldSlots
from libs.common.telemetry.logs import name_lines
from libs.common.tls import client_context_for
from services.gateway.access.addresses import Origin, TrustedProxies
from services.gateway.access.gatekeeper import ADMISSION, Gatekeeper, no_store
from services.gateway.concurrency import LATER, ConcurrencyLimiter
from services.gateway.rates import Tarpit
from services.gateway.routes import API, Credential, Route
from services.gateway.tunnel.end import End
from services.gateway.tunnel.handshake import Handshake, read_handshake, to_upstream

log = logging.getLogger(__name__)

ROUTE = Route(
    name="websocket",
    prefix=b"/websocket",
    upstream="management",
    credential=Credential.TOKEN,
    kinds=frozenset({Kind.USER}),
)
MQTT = Route(
    name="mqtt",
    prefix=WS_PATH.encode(),
    upstream="management",
    credential=Credential.NONE,
)
"""MQTT over WebSocket: `management` reads the login in the first packet."""
ROUTES = {ROUTE.prefix: ROUTE, API + ROUTE.prefix: ROUTE, MQTT.prefix: MQTT}
REASONS = {400: "Bad Request", 403: "Forbidden", 404: "Not Found", 429: "Too Many Requests"}


@dataclass(kw_only=True)
class Tunnels:
    """The open tunnels of this process, and the creation of new ones."""

    gatekeeper: Gatekeeper
    concurrency: ConcurrencyLimiter
    tarpit: Tarpit
    signer: HeaderSigner
    proxies: TrustedProxies
    upstream: URL | None
    """The URL of `management`; None disables tunnels."""
    most: int
    connect_timeout: float
    ca_file: str = ""
    open_tunnels: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Register the metric of open tunnels."""
        url, ca_file = self.upstream, self.ca_file
        self._tls = None if url is None else client_context_for(str(url), ca_file)
        metrics.get_meter("thingway").create_observable_gauge(
            "thingway.gateway.websockets",
            [lambda _: [metrics.Observation(self.open_tunnels)]],
            description="Open WebSocket connections",
        )

    def protocol(self, config: Any, server_state: Any, app_state: Any) -> "Client":
        """Return the protocol of a client that requests an upgrade; called by uvicorn."""
        del config, app_state
        return Client(self, server_state.connections)

    async def open_tunnel(self, client: "Client", handshake: Handshake, request_id: str) -> None:
        """Admit a client and connect it; raise a `ThingwayError` otherwise."""
        route = ROUTES.get(handshake.path)
        if route is None or self.upstream is None:
            raise NotFound("no WebSocket is served at this path")
        if handshake.method != b"GET" or handshake.field(b"sec-websocket-key") is None:
            raise InvalidInput("is required for a WebSocket", field="Sec-WebSocket-Key")
        origin = self.proxies.origin(client.scope, dict(handshake.fields))
        try:
            principal = await self._admit(route, handshake, origin)
            if self.open_tunnels >= self.most:
                raise Unavailable("too many WebSocket connections are open", retry_after=LATER)
            client.hold(self._hold(principal, origin))
        except TooManyRequests:
            await self.tarpit.wait(origin.limit_key)
            raise
        head = to_upstream(
            handshake,
            path=route.prefix,
            host=self.upstream.authority,
            identity={} if principal is None else self._identity(principal, handshake.token or ""),
            origin=origin,
            request_id=request_id,
        )
        client.join(await self._connect(self.upstream), head)

    async def _admit(self, route: Route, handshake: Handshake, origin: Origin) -> Principal | None:
        token = None if route.credential is Credential.NONE else handshake.token
        try:
            async with asyncio.timeout(ADMISSION):
                principal = await self.gatekeeper.admit(route, handshake.path, origin, None, token)
        except TimeoutError as error:
            raise no_store() from error
        return principal

    def _hold(self, principal: Principal | None, origin: Origin) -> HeldSlots:
        if principal is None:
            return self.concurrency.acquire_anonymous_websocket(origin.limit_key)
        return self.concurrency.acquire_websocket(principal)

    def _identity(self, principal: Principal, token: str) -> dict[str, str]:
        """Return the header fields with the principal and token."""
        return {PRINCIPAL_HEADER: self.signer.sign(principal), TOKEN_HEADER: token_hash(token)}

    async def _connect(self, upstream: URL) -> End:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.connect_timeout):
                _, service = await loop.create_connection(
                    End, upstream.host or "", upstream.port or 80, ssl=self._tls
                )
        except (OSError, TimeoutError) as error:
            log.warning("cannot connect a WebSocket to management: %r", error)
            raise Unavailable("the service does not answer at the moment") from error
        return service


class Client(End):
    """The connection of a client, from its handshake on."""

    def __init__(self, tunnels: Tunnels, connections: set[Any]) -> None:
        super().__init__()
        self._tunnels = tunnels
        self._connections = connections
        self._opening: asyncio.Task[None] | None = None
        self._held: HeldSlots | None = None
        self._lost = False
        self.when_lost: Callable[[], None] | None = None
        self.scope: Any = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the connection from the HTTP protocol."""
        super().connection_made(transport)
        self._connections.add(self)
        encrypted = transport.get_extra_info("sslcontext") is not None
        self.scope = {
            "client": transport.get_extra_info("peername"),
            "scheme": "wss" if encrypted else "ws",
        }

    def data_received(self, data: bytes) -> None:
        """Process the handshake, then forward data."""
        if self._opening is None:
            self.transport.pause_reading()
            self._opening = asyncio.ensure_future(self._open_tunnel(data))
        else:
            super().data_received(data)

    def hold(self, held: HeldSlots) -> None:
        """Occupy slots until the connection is closed."""
        self._held = held
        self._tunnels.open_tunnels += 1
        if self._lost:
            self._give()

    def join(self, service: End, head: bytes) -> None:
        """Start forwarding between this client and `service`."""
        if self.transport.is_closing():
            service.transport.close()
            return
        self.other, service.other = service, self
        service.transport.write(head)
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the slots of the client."""
        self._connections.discard(self)
        self._lost = True
        self._give()
        if self.when_lost is not None:
            self.when_lost()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close, because the process ends: clients reconnect to another replica."""
        self.transport.close()

    def _give(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None
            self._tunnels.open_tunnels -= 1

    async def _open_tunnel(self, head: bytes) -> None:
        request_id = new_request_id()
        name_lines(requestId=request_id)
        handshake = read_handshake(head)
        try:
            await self._tunnels.open_tunnel(self, handshake, request_id)
        except ThingwayError as error:
            self._refuse(error, handshake, request_id)
        except Exception:
            log.exception("request %s: a tunnel failed", request_id)
            self._refuse(ThingwayError(OUR_FAULT), handshake, request_id)

    def _refuse(self, error: ThingwayError, handshake: Handshake, request_id: str) -> None:
        """Answer an error over HTTP; a missing login is 403, as consoles expect."""
        log_refusal(error, handshake.method.decode("latin-1"), ROUTE.name)
        status = 403 if error.status == Unauthenticated.status else error.status
        body = encode_error(error, path=handshake.path.decode("latin-1"), request_id=request_id)
        fields = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "x-request-id": request_id,
            "connection": "close",
            **error_headers(error),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"HTTP/1.1 {status} {REASONS.get(status, 'Refused')}\r\n{lines}\r\n"
        self.transport.write(head.encode("latin-1") + body)
        self.transport.close()
