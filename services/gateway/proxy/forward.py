"""Requests to services and their answers, both streamed, and error answers.

The body of a rejected request may still be in transit. Closing a connection with unread bytes
resets it, and the reset may discard the answer before the client has read it (RFC 9112, 9.6). The
rest is therefore read and discarded first, within limits.

A single timer serves all limits of a request. It fires first after 50 ms, when most requests have
ended, so they need no task. Header fields are forwarded by RFC 9110 §7.6.1.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from litestar.types import HTTPScope, Receive, Send

from libs.common.envelope import encode_error, error_headers
from libs.common.errors import ThingwayError, Unauthenticated, Unavailable
from libs.common.http.static import MIN_COMPRESSED_BYTES, WBITS_BY_CODING
from libs.common.identity import PRINCIPAL_HEADER, HeaderSigner, Principal
from libs.common.telemetry.tracing import TRACE_HEADER, current_trace
from services.gateway.access.addresses import ClientOrigin
from services.gateway.proxy.body import ClientDisconnected, RequestBody
from services.gateway.proxy.coding import UnsupportedCoding, create_encoder
from services.gateway.routes import CredentialType, Route
from services.gateway.upstream.connection import HeaderField, ServiceAnswer
from services.gateway.upstream.service import ServiceRequest, UpstreamService

HeaderFields = Iterable[HeaderField]

HOP_BY_HOP_FIELDS = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
INTERNAL_FIELD_PREFIX = b"x-thingway-"
"""Prefix of header fields that only our services send."""
_DROPPED_REQUEST_FIELDS = HOP_BY_HOP_FIELDS | {
    b"authorization",  # replaced by the principal header
    b"content-encoding",  # decoded by the gateway
    b"content-length",  # set again with the body
    b"expect",  # answered by the gateway's server
    b"forwarded",
    b"host",
    b"traceparent",  # set by the gateway
    b"tracestate",
    b"baggage",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-real-ip",
    b"x-request-id",
}
_DROPPED_ANSWER_FIELDS = HOP_BY_HOP_FIELDS | {b"x-request-id"}
_CACHING, _NO_STORE = b"cache-control", (b"cache-control", b"no-store")
_BODYLESS_STATUSES = frozenset({204, 304})
"""Statuses without a body, whose length must not be sent."""


def _filter_fields(fields: HeaderFields, dropped: frozenset[bytes]) -> list[HeaderField]:
    """Return the fields except dropped, internal and connection-specific ones."""
    kept_fields, connection_fields = [], []
    for field in fields:
        name = field[0]
        if name not in dropped:
            if not name.startswith(INTERNAL_FIELD_PREFIX):
                kept_fields.append(field)
        elif name == b"connection":
            connection_fields.append(field[1])
    if connection_fields:
        tokens = {token.strip().lower() for token in b",".join(connection_fields).split(b",")}
        kept_fields = [field for field in kept_fields if field[0] not in tokens]
    return kept_fields


def to_service_fields(
    fields: HeaderFields, *, origin: ClientOrigin, request_id: str
) -> list[HeaderField]:
    """Return the header fields of the request to the service, with names in lower case."""
    kept_fields = _filter_fields(fields, _DROPPED_REQUEST_FIELDS)
    kept_fields += (
        (b"x-request-id", request_id.encode()),
        (b"x-real-ip", origin.address.encode("latin-1")),
        (b"x-forwarded-for", origin.forwarded_for.encode("latin-1")),
        (b"x-forwarded-proto", origin.scheme.encode("latin-1")),
        (b"x-forwarded-host", origin.host.encode("latin-1")),
    )
    return kept_fields


def to_client_fields(fields: HeaderFields, *, status: int, request_id: str) -> list[HeaderField]:
    """Return the header fields of the answer to the client, with names in lower case.

    An answer must not be stored, unless its service permits it.
    """
    bodyless = status in _BODYLESS_STATUSES
    kept_fields = _filter_fields(
        fields, _DROPPED_ANSWER_FIELDS | {b"content-length"} if bodyless else _DROPPED_ANSWER_FIELDS
    )
    kept_fields.append((b"x-request-id", request_id.encode()))
    if not any(name == _CACHING for name, _ in kept_fields):
        kept_fields.append(_NO_STORE)
    return kept_fields


MAX_DISCARD_SECONDS = 30.0
"""Seconds for which a client may continue to send a rejected body."""
DISCARD_SILENCE_SECONDS = 5.0
"""Seconds without data after which a rejected body is no longer awaited."""
UNEXPECTED_BODY_SECONDS = 0.1
"""Seconds in which a client that expects `100 Continue` may start to send anyway."""
MAX_DISCARDED_BYTES = 64 * 1024 * 1024
"""Maximum bytes of a rejected body that are discarded; with more, the connection is reset."""
MAX_KEEP_ALIVE_BODY_BYTES = 64 * 1024
"""Largest rejected body, in bytes, after which the connection stays open."""

_CHALLENGE_BY_CREDENTIAL = {
    CredentialType.TOKEN: b'Bearer realm="thingway", error="invalid_token"',
    CredentialType.DEVICE_KEY: b'Basic realm="thingway", charset="UTF-8"',
}


class RequestTimeout(ThingwayError):
    """408: the client did not send its body in time."""

    status = 408
    code = "request_timeout"


def slow_client_error() -> ThingwayError:
    """Return the error for a client that does not send or receive data in time."""
    return RequestTimeout("the client was too slow")


async def send_error(
    send: Send,
    error: ThingwayError,
    *,
    path: str,
    request_id: str,
    credential: CredentialType = CredentialType.NONE,
    body: RequestBody,
) -> None:
    """Answer `error`; close the connection if a large body follows, or may follow.

    A client that expects `100 Continue` may or may not send its body after an error, so the body
    could not be distinguished from the next request (RFC 9110, 10.1.1).
    """
    content = encode_error(error, path=path, request_id=request_id)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"x-request-id", request_id.encode()),
    ]
    for name, value in error_headers(error).items():
        headers.append((name.lower().encode(), value.encode()))
    if isinstance(error, Unauthenticated) and credential in _CHALLENGE_BY_CREDENTIAL:
        headers.append((b"www-authenticate", _CHALLENGE_BY_CREDENTIAL[credential]))
    if isinstance(error, UnsupportedCoding):
        headers.append((b"accept-encoding", b", ".join(WBITS_BY_CODING)))
    closes = body.on_demand or (
        not body.finished
        and (body.length or MAX_KEEP_ALIVE_BODY_BYTES + 1) > MAX_KEEP_ALIVE_BODY_BYTES
    )
    if closes:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    if not body.finished:
        await send({"type": "http.response.body", "body": content, "more_body": True})
        content = b""
        await _discard_rest(body)
    await send({"type": "http.response.body", "body": content, "more_body": False})


async def _discard_rest(body: RequestBody) -> None:
    """Read and discard the rest of the body, within limits."""
    pause, remaining_bytes = (
        UNEXPECTED_BODY_SECONDS if body.on_demand else DISCARD_SILENCE_SECONDS,
        MAX_DISCARDED_BYTES,
    )
    try:
        async with asyncio.timeout(MAX_DISCARD_SECONDS):
            while not body.finished and remaining_bytes > 0:
                async with asyncio.timeout(pause):
                    remaining_bytes -= await body.discard_part()
                pause = DISCARD_SILENCE_SECONDS
    except TimeoutError:
        return


FIRST_CHECK_SECONDS = 0.05
"""Seconds until the first check of a request's time limit, and between further checks while the
body is received."""

TimeoutErrorFactory = Callable[[], ThingwayError]
"""Returns the error to answer when the time limit is exceeded."""


class RequestWatch:
    """Cancels the current task after its time limit or when its client disconnects."""

    def __init__(self, receive: Receive, body: RequestBody) -> None:
        self._receive = receive
        self._body = body
        self._loop = asyncio.get_running_loop()
        self._worker = asyncio.current_task(self._loop)
        self._deadline = float("inf")
        self._create_error: TimeoutErrorFactory | None = None
        self._listener: asyncio.Task[None] | None = None
        self._has_checked = False
        self._gone = False
        self._expired: ThingwayError | None = None
        self._timer = self._loop.call_later(FIRST_CHECK_SECONDS, self._check)

    def set_deadline(self, seconds: float, create_error: TimeoutErrorFactory) -> None:
        """Replace the time limit by `seconds` from now."""
        self._deadline = self._loop.time() + seconds
        self._create_error = create_error
        if self._has_checked:
            self._timer.cancel()
            self._check()

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()

    def find_error(self, cancelled: asyncio.CancelledError) -> ThingwayError:
        """Return the error that cancelled the task.

        Raises `ClientDisconnected` after a disconnect, and `cancelled` if the watch did not cancel
        the task.
        """
        if self._worker is None or not (self._gone or self._expired):
            raise cancelled
        self._worker.uncancel()
        if self._expired is None:
            raise ClientDisconnected from cancelled
        return self._expired

    def _check(self) -> None:
        self._has_checked = True
        now = self._loop.time()
        if now >= self._deadline and self._create_error is not None:
            self._expired = self._create_error()
            self._cancel_worker()
            return
        if self._listener is None and self._body.finished:
            self._listener = asyncio.ensure_future(self._wait_for_disconnect())
        # While the body is being read, its reader notices that the client disconnects.
        again = self._deadline if self._listener else min(self._deadline, now + FIRST_CHECK_SECONDS)
        if again != float("inf"):
            self._timer = self._loop.call_at(again, self._check)

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._cancel_worker()

    def _cancel_worker(self) -> None:
        if self._worker is not None:
            self._worker.cancel()


_PRINCIPAL_FIELD = PRINCIPAL_HEADER.encode()


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A client's request that is forwarded to a service, and its progress."""

    route: Route
    scope: HTTPScope
    headers: dict[bytes, bytes]
    """The last field of each name."""
    origin: ClientOrigin
    body: RequestBody
    watch: RequestWatch
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
    def service_target(self) -> str:
        """Return path and query for the service."""
        path = self.route.rewrite_path(self.path)
        return (path + b"?" + self.query if self.query else path).decode("latin-1")


@dataclass(frozen=True)
class Forwarder:
    """Sends exchanges to services; `traced` if spans are exported."""

    upstreams: Mapping[str, UpstreamService]
    signer: HeaderSigner
    timeout: float
    """Maximum seconds for the body of a request and the head of its answer together, and for each
    further part of the answer."""
    traced: bool

    async def forward(self, exchange: Exchange, send: Send) -> int:
        """Run the exchange and return the status.

        Raises `ThingwayError` if the service fails, and `ClientDisconnected` if the client closes
        the connection.
        """
        upstream = self.upstreams.get(exchange.route.upstream)
        if upstream is None:
            raise Unavailable(f"the service {exchange.route.upstream} is not part of this platform")
        body = exchange.body
        slot = upstream.acquire_slot(poll=exchange.wait > 0)
        try:
            exchange.watch.set_deadline(
                self.timeout + exchange.wait,
                lambda: slow_client_error() if body.awaited else upstream.build_timeout_error(),
            )
            request = ServiceRequest(
                exchange.scope["method"],
                exchange.service_target,
                self._build_service_fields(exchange),
                await body.start() if body.exists else None,
                body.length,
            )
            connection, answer = await upstream.send_request(request)
            try:
                await self._forward_answer(exchange, upstream, answer, send)
            finally:
                upstream.end_exchange(connection)
            return answer.status
        finally:
            slot.release()

    async def _forward_answer(
        self, exchange: Exchange, upstream: UpstreamService, answer: ServiceAnswer, send: Send
    ) -> None:
        status, request_id, watch = answer.status, exchange.request_id, exchange.watch
        fields = to_client_fields(answer.fields, status=status, request_id=request_id)
        encode = None
        if answer.waiting > MIN_COMPRESSED_BYTES or not answer.complete:
            encode = create_encoder(fields, exchange.headers, exchange.scope["method"])
        exchange.answered = True
        await send({"type": "http.response.start", "status": status, "headers": fields})
        more = True
        while more:
            if not answer.complete:
                watch.set_deadline(self.timeout, upstream.build_timeout_error)
            part, more = await upstream.receive_part(answer)
            if more:
                watch.set_deadline(self.timeout, slow_client_error)
            if encode is not None:
                part = encode(part, more)
            await send({"type": "http.response.body", "body": part, "more_body": more})

    def _build_service_fields(self, exchange: Exchange) -> list[HeaderField]:
        fields = to_service_fields(
            exchange.scope["headers"], origin=exchange.origin, request_id=exchange.request_id
        )
        if exchange.principal is not None:
            fields.append((_PRINCIPAL_FIELD, self.signer.sign(exchange.principal).encode()))
        if exchange.route.passes_login and (login := exchange.headers.get(b"authorization")):
            fields.append((b"authorization", login))
        if self.traced and (trace := current_trace()):
            fields.append((TRACE_HEADER.encode(), trace.encode()))
        return fields
