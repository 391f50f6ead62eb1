"""Tunnels between WebSocket clients and `management`, at `/websocket` and `/mqtt`.

A handshake (RFC 6455, 4.1) is admitted like a request, except for MQTT, whose login follows later.
Afterwards, the gateway forwards bytes with back pressure and without parsing frames, so that an
idle socket costs two transports and no task.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote_plus

from opentelemetry import metrics
from yarl import URL

from libs.common.contracts.mqtt import MQTT_WEBSOCKET_PATH
from libs.common.errors import (
    INTERNAL_ERROR_MESSAGE,
    InvalidInput,
    NotFound,
    ThingwayError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from libs.common.http.protocol import encode_response
from libs.common.http.request import (
    MAX_CREDENTIAL_LENGTH,
    bearer_token,
    log_rejection,
    new_request_id,
)
from libs.common.identity import (
    PRINCIPAL_HEADER,
    TOKEN_HEADER,
    HeaderSigner,
    Principal,
    PrincipalKind,
)
from libs.common.identity.tokens import token_hash
from libs.common.limits.tenants import HeldSlots
from libs.common.telemetry.logs import add_log_fields
from libs.common.tls import client_context_for
from services.gateway.access.addresses import ClientOrigin, TrustedProxies
from services.gateway.access.gatekeeper import (
    MAX_ADMISSION_SECONDS,
    RequestAdmission,
    redis_unavailable_error,
)
from services.gateway.concurrency import POLL_RETRY_SECONDS, ConcurrencyLimiter
from services.gateway.proxy.forward import to_service_fields
from services.gateway.rates import Tarpit
from services.gateway.routes import API_PREFIX, CredentialType, Route
from services.gateway.upstream.connection import HeaderField

MAX_READ_BYTES, MAX_WAITING_BYTES = 32 * 1024, 16 * 1024
"""Bytes that are read in one step, and bytes that may wait to be sent on one connection before
reading from the other connection pauses."""
_read_buffer = memoryview(bytearray(MAX_READ_BYTES))
"""The read buffer that all tunnels share: its content is forwarded before the next read."""


class TunnelEnd(asyncio.BufferedProtocol):
    """One of a tunnel's two connections; not read while `other` cannot be written."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.other: TunnelEnd | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and detect lost peers with TCP keep-alive."""
        self.transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's class does not inherit from it
        self.transport.set_write_buffer_limits(MAX_WAITING_BYTES)
        enable_keep_alive(self.transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer into which asyncio writes the next received bytes."""
        del sizehint
        return _read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Forward the received bytes."""
        self.data_received(bytes(_read_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Forward data."""
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Pause reading from the other connection."""
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading from the other connection."""
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other connection after its pending data is sent."""
        if self.other is not None:
            self.other.transport.close()
            self.other = None


def enable_keep_alive(transport: asyncio.Transport) -> None:
    """Probe a peer after 60 s of silence; close after three probes, 10 s apart, without an answer.

    A system without these options uses its own intervals.
    """
    tcp_socket: socket.socket | None = transport.get_extra_info("socket")
    if tcp_socket is None or tcp_socket.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    tcp_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # not on all systems
            tcp_socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


TOKEN_PARAMETER = "authorization"  # noqa: S105 - the name of the parameter
"""The query parameter with the token: browsers cannot set a header of a WebSocket handshake."""


@dataclass(frozen=True, slots=True)
class WebSocketHandshake:
    """The handshake of a client."""

    method: bytes
    path: bytes
    query: bytes
    fields: list[HeaderField]

    def get_field(self, name: bytes) -> bytes | None:
        """Return the last value of a header field."""
        return next((value for found, value in reversed(self.fields) if found == name), None)

    @property
    def token(self) -> str | None:
        """Return the token of the header, else of the query, with or without `Bearer `."""
        token = bearer_token(self.get_field(b"authorization"))
        if token is not None:
            return token
        for part in self.query.decode("latin-1").split("&"):
            name, _, value = part.partition("=")
            if unquote_plus(name).lower() == TOKEN_PARAMETER:
                text = unquote_plus(value)[:MAX_CREDENTIAL_LENGTH].strip()
                word, _, rest = text.partition(" ")
                return (rest.strip() if word.lower() == "bearer" else text) or None
        return None


def parse_handshake(head: bytes) -> WebSocketHandshake:
    """Parse a head as uvicorn passes it on: one field per line, names in lower case."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, target, _ = first.split(b" ")
    path, _, query = target.partition(b"?")
    fields = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    return WebSocketHandshake(method, path, query, fields)


def build_service_head(
    handshake: WebSocketHandshake,
    *,
    path: bytes,
    host: str,
    identity: Mapping[str, str],
    origin: ClientOrigin,
    request_id: str,
) -> bytes:
    """Return the head for the service, without the token, with `identity` as fields."""
    kept_fields = to_service_fields(handshake.fields, origin=origin, request_id=request_id)
    fields = [
        (b"host", host.encode()),
        (b"connection", b"Upgrade"),
        (b"upgrade", b"websocket"),
        *(field for field in kept_fields if field[0] not in _DROPPED_FIELDS),
        *((name.encode(), value.encode()) for name, value in identity.items()),
    ]
    lines = b"".join(b"%s: %s\r\n" % field for field in fields)
    return b"GET %s HTTP/1.1\r\n%s\r\n" % (path, lines)


_DROPPED_FIELDS = frozenset({b"cookie", b"sec-websocket-extensions"})
"""Dropped header fields; compression extensions would cost each idle socket its buffers."""


log = logging.getLogger(__name__)

WEBSOCKET_ROUTE = Route(
    name="websocket",
    prefix=b"/websocket",
    upstream="management",
    credential=CredentialType.TOKEN,
    kinds=frozenset({PrincipalKind.USER}),
)
MQTT_ROUTE = Route(
    name="mqtt",
    prefix=MQTT_WEBSOCKET_PATH.encode(),
    upstream="management",
    credential=CredentialType.NONE,
)
"""MQTT over WebSocket: `management` reads the login in the first packet."""
ROUTE_BY_PATH = {
    WEBSOCKET_ROUTE.prefix: WEBSOCKET_ROUTE,
    API_PREFIX + WEBSOCKET_ROUTE.prefix: WEBSOCKET_ROUTE,
    MQTT_ROUTE.prefix: MQTT_ROUTE,
}


@dataclass(kw_only=True)
class Tunnels:
    """Opens tunnels from WebSocket clients to `management`, and counts open ones."""

    gatekeeper: RequestAdmission
    concurrency: ConcurrencyLimiter
    tarpit: Tarpit
    signer: HeaderSigner
    proxies: TrustedProxies
    upstream: URL | None
    """The URL of `management`; None disables tunnels."""
    maximum: int
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

    def create_protocol(
        self, config: Any, server_state: Any, app_state: Any
    ) -> "WebSocketClientConnection":
        """Return the protocol of a client that requests an upgrade; called by uvicorn."""
        del config, app_state
        return WebSocketClientConnection(self, server_state)

    async def open_tunnel(
        self, client: "WebSocketClientConnection", handshake: WebSocketHandshake, request_id: str
    ) -> None:
        """Admit a client and connect it; raise a `ThingwayError` otherwise."""
        route = ROUTE_BY_PATH.get(handshake.path)
        if route is None or self.upstream is None:
            raise NotFound("no WebSocket is served at this path")
        if handshake.method != b"GET" or handshake.get_field(b"sec-websocket-key") is None:
            raise InvalidInput("is required for a WebSocket", field="Sec-WebSocket-Key")
        origin = self.proxies.find_origin(client.scope, dict(handshake.fields))
        try:
            principal = await self._admit(route, handshake, origin)
            if self.open_tunnels >= self.maximum:
                raise Unavailable(
                    "too many WebSocket connections are open", retry_after=POLL_RETRY_SECONDS
                )
            client.hold_slots(self._occupy_slots(principal, origin))
        except TooManyRequests:
            await self.tarpit.delay_rejection(origin.rate_limit_key)
            raise
        head = build_service_head(
            handshake,
            path=route.prefix,
            host=self.upstream.authority,
            identity={}
            if principal is None
            else self._identity_fields(principal, handshake.token or ""),
            origin=origin,
            request_id=request_id,
        )
        client.connect_service(await self._connect(self.upstream), head)

    async def _admit(
        self, route: Route, handshake: WebSocketHandshake, origin: ClientOrigin
    ) -> Principal | None:
        token = None if route.credential is CredentialType.NONE else handshake.token
        try:
            async with asyncio.timeout(MAX_ADMISSION_SECONDS):
                principal = await self.gatekeeper.admit(route, handshake.path, origin, None, token)
        except TimeoutError as error:
            raise redis_unavailable_error() from error
        return principal

    def _occupy_slots(self, principal: Principal | None, origin: ClientOrigin) -> HeldSlots:
        if principal is None:
            return self.concurrency.acquire_anonymous_websocket(origin.rate_limit_key)
        return self.concurrency.acquire("websockets", principal)

    def _identity_fields(self, principal: Principal, token: str) -> dict[str, str]:
        """Return the header fields with the principal and token."""
        return {PRINCIPAL_HEADER: self.signer.sign(principal), TOKEN_HEADER: token_hash(token)}

    async def _connect(self, upstream: URL) -> TunnelEnd:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.connect_timeout):
                _, service = await loop.create_connection(
                    TunnelEnd, upstream.host or "", upstream.port or 80, ssl=self._tls
                )
        except (OSError, TimeoutError) as error:
            log.warning("cannot connect a WebSocket to management: %r", error)
            raise Unavailable("the service does not answer at the moment") from error
        return service


class WebSocketClientConnection(TunnelEnd):
    """The connection of a client, from its handshake on."""

    def __init__(self, tunnels: Tunnels, server: Any) -> None:
        super().__init__()
        self._tunnels = tunnels
        self._connections: set[Any] = server.connections
        self._headers: list[tuple[bytes, bytes]] = server.default_headers
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

    def hold_slots(self, slots: HeldSlots) -> None:
        """Keep occupied slots until the connection is closed, and count the tunnel as open."""
        self._held = slots
        self._tunnels.open_tunnels += 1
        if self._lost:
            self._release_slots()

    def connect_service(self, service: TunnelEnd, head: bytes) -> None:
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
        self._release_slots()
        if self.when_lost is not None:
            self.when_lost()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close, because the process ends: clients reconnect to another replica."""
        self.transport.close()

    def _release_slots(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None
            self._tunnels.open_tunnels -= 1

    async def _open_tunnel(self, head: bytes) -> None:
        request_id = new_request_id()
        add_log_fields(requestId=request_id)
        handshake = parse_handshake(head)
        try:
            await self._tunnels.open_tunnel(self, handshake, request_id)
        except ThingwayError as error:
            self._reject(error, handshake, request_id)
        except Exception:
            log.exception("request %s: a tunnel failed", request_id)
            self._reject(ThingwayError(INTERNAL_ERROR_MESSAGE), handshake, request_id)

    def _reject(self, error: ThingwayError, handshake: WebSocketHandshake, request_id: str) -> None:
        """Answer an error over HTTP; a missing or invalid login is 403, as consoles expect."""
        log_rejection(error, handshake.method.decode("latin-1"), WEBSOCKET_ROUTE.name)
        status = HTTPStatus(403 if error.status == Unauthenticated.status else error.status)
        path = handshake.path.decode("latin-1")
        self.transport.write(encode_response(error, status, path, request_id, self._headers))
        self.transport.close()
