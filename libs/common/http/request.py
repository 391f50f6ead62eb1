"""What a handler asks of the current request."""

import base64
import binascii
import logging
import os
import time
from typing import Any, TypeVar
from urllib.parse import unquote_plus

import msgspec
from litestar import Request
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.enums import ScopeType
from litestar.types import HTTPScope, Scope

from libs.common.envelope import Success
from libs.common.errors import ThingwayError, Unauthenticated
from libs.common.identity import Caller, Principal
from libs.common.telemetry.logs import name_lines

log = logging.getLogger(__name__)

T = TypeVar("T")

Connection = ASGIConnection[Any, Any, Any, Any]
HttpRequest = Request[Any, Any, Any]

REQUESTS = frozenset({ScopeType.HTTP, ScopeType.WEBSOCKET})
REQUEST_ID_HEADER = "x-request-id"
CLIENT_ADDRESS_HEADER = "x-real-ip"
CALLED_HOST_HEADER = "x-forwarded-host"
"""The client's own address, and the host that it called; the gateway sets them and strips what
came from outside."""
REQUEST_ID = "thingway.request_id"
PRINCIPAL = "thingway.principal"


ASKS_METHODS = "thingway.asks-methods"
BODILESS = "thingway.bodiless"


def as_handled(scope: HTTPScope) -> HTTPScope:
    """A request as handlers know it: HEAD is GET, whose body the server leaves away.

    OPTIONS becomes a method that no path has: the refusal names those that there are, and
    `failures` answers it as what it was. Litestar's own answer misses some of them.
    """
    if scope["method"] == "HEAD":
        return {**scope, "method": "GET", BODILESS: True}  # type: ignore[misc]
    if scope["method"] == "OPTIONS":
        return {**scope, "method": "TRACE", ASKS_METHODS: True}  # type: ignore[misc]
    return scope


def is_seen(request: HttpRequest) -> bool:
    """Whether who asked gets the body of the answer: not of HEAD."""
    return BODILESS not in request.scope


def new_request_id() -> str:
    """32 lowercase hex digits, as the open API's samples show."""
    return os.urandom(16).hex()


def identify(scope: Scope) -> str:
    """Give a request its one id, that of the header when it has none yet, and log it; return it.

    The gateway sets the header, and strips what came from outside.
    """
    extra: dict[str, Any] = scope  # type: ignore[assignment]
    request_id: str = extra.get(REQUEST_ID, "") or _sent_id(scope) or new_request_id()
    extra[REQUEST_ID] = request_id
    name_lines(requestId=request_id)
    return request_id


def _sent_id(scope: Scope) -> str:
    name = REQUEST_ID_HEADER.encode()
    found = next((value for field, value in scope["headers"] if field == name), b"")
    return found.decode("latin-1")


def request_id_of(connection: Connection) -> str:
    """The id of this request, given by the gateway or made here."""
    found: str | None = connection.scope.get(REQUEST_ID)  # type: ignore[assignment]
    return found or new_request_id()


def principal_of(connection: Connection) -> Principal:
    """The caller; raise `Unauthenticated` when there is none."""
    principal: Principal | None = connection.scope.get(PRINCIPAL)  # type: ignore[assignment]
    if principal is None:
        raise Unauthenticated("this operation needs a caller")
    return principal


def requester(request: HttpRequest) -> Principal:
    """`principal_of`, as a dependency."""
    return principal_of(request)


Requester = NamedDependency[Principal]
"""The type of a handler's `principal`: who calls."""


def address_of(connection: Connection) -> str:
    """The client's own address, empty when the gateway did not say it."""
    return connection.headers.get(CLIENT_ADDRESS_HEADER, "")


def address_in(scope: Scope) -> str:
    """Return what `address_of` does, before there is a connection."""
    return dict(scope["headers"]).get(CLIENT_ADDRESS_HEADER.encode(), b"").decode("latin-1")


def host_of(connection: Connection) -> str:
    """The host, with its port, that the client called."""
    headers = connection.headers
    return headers.get(CALLED_HOST_HEADER, "") or headers.get("host", "")


def request_caller(request: HttpRequest) -> Caller:
    """Who calls, from where and under which request id: what an audit log records."""
    return Caller(principal_of(request), address_of(request), request_id_of(request))


RequestCaller = NamedDependency[Caller]
"""The type of a handler's `caller`: who calls, and from where."""


def ok(connection: Connection, data: T | msgspec.UnsetType = msgspec.UNSET) -> Success[T]:
    """The open API's success envelope around `data`."""
    return Success(data=data, request_id=request_id_of(connection))


LONGEST_CREDENTIAL = 4096
"""Characters of a credential that are looked at; ours have 43."""
_PARAMETER = "access_token"


def _after_scheme(header: bytes | None, scheme: bytes) -> str | None:
    if not header or len(header) > LONGEST_CREDENTIAL:
        return None
    word, _, value = header.strip().partition(b" ")
    if word.lower() != scheme:
        return None
    return value.strip().decode("latin-1") or None


def bearer_token(header: bytes | None) -> str | None:
    """The token of `Authorization: Bearer` (RFC 6750 §2.1); the scheme's case is free."""
    return _after_scheme(header, b"bearer")


def basic_login(header: bytes | None) -> tuple[str, str] | None:
    """User and password of `Authorization: Basic` (RFC 7617)."""
    encoded = _after_scheme(header, b"basic")
    if encoded is None:
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (user, password) if user and colon else None


def take_query_token(query: bytes) -> tuple[str | None, bytes]:
    """The value of `access_token` (RFC 6750 §2.3), and the query without that parameter."""
    if b"access" not in query and b"%" not in query:
        return None, query
    token, kept = None, []
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if unquote_plus(name) == _PARAMETER:
            token = unquote_plus(value)[:LONGEST_CREDENTIAL] or token
        else:
            kept.append(part)
    return token, "&".join(kept).encode("latin-1")


MOST_LINES = 200
"""Lines a second: a flood of wrong requests must not fill the disk."""


class LineLimit(logging.Filter):
    """Passes at most `most` lines a second; the next line says how many are missing."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._second = 0
        self._passed = 0
        self._missing = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is logged."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._passed = second, 0
        if self._passed >= self._most:
            self._missing += 1
            return False
        self._passed += 1
        if self._missing:
            record.msg = f"{record.msg} ({self._missing} lines like this one are missing)"
            self._missing = 0
        return True


log.addFilter(LineLimit(MOST_LINES))


def log_refusal(error: ThingwayError, method: str, where: str) -> None:
    """Log a refused request: its method, path template and fault.

    Paths and messages stay out of the log, as both may hold secrets.
    """
    reason = f"{error.code} {error.field!r:.130}" if error.field else error.code
    log.info("refused %s %s: %d %s", method, where or "?", error.status, reason)


def log_failure(status: int, method: str, where: str) -> None:
    """Log that a service refused a request which the gateway passed on."""
    log.info("answered %s %s: %d", method, where, status)
