"""Properties of the current request."""

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
from libs.common.telemetry.logs import add_log_fields

log = logging.getLogger(__name__)

T = TypeVar("T")

Connection = ASGIConnection[Any, Any, Any, Any]
HttpRequest = Request[Any, Any, Any]

REQUEST_SCOPES = frozenset({ScopeType.HTTP, ScopeType.WEBSOCKET})
REQUEST_ID_HEADER = "x-request-id"
CLIENT_ADDRESS_HEADER = "x-real-ip"
CALLED_HOST_HEADER = "x-forwarded-host"
"""The client's IP address and the host that it called. The gateway sets both headers and removes
external ones."""
REQUEST_ID_KEY = "thingway.request_id"
PRINCIPAL_KEY = "thingway.principal"


IS_OPTIONS_KEY = "thingway.asks-methods"
NO_BODY_KEY = "thingway.bodiless"


def replace_head_and_options(scope: HTTPScope) -> HTTPScope:
    """Return the request for handlers: HEAD becomes GET, whose body the server omits.

    OPTIONS becomes TRACE, which no path supports: the error lists the supported methods, and
    `failures` turns it into an answer to OPTIONS. Litestar's own answer omits methods.
    """
    if scope["method"] == "HEAD":
        return {**scope, "method": "GET", NO_BODY_KEY: True}  # type: ignore[misc]
    if scope["method"] == "OPTIONS":
        return {**scope, "method": "TRACE", IS_OPTIONS_KEY: True}  # type: ignore[misc]
    return scope


def needs_body(request: HttpRequest) -> bool:
    """Return whether the client gets the body of the answer: not with HEAD."""
    return NO_BODY_KEY not in request.scope


def new_request_id() -> str:
    """Return 32 random hexadecimal digits in lower case."""
    return os.urandom(16).hex()


def assign_request_id(scope: Scope) -> str:
    """Return the id of a request, set from its header or newly generated, and log it.

    The gateway sets the header and removes external ones.
    """
    extra: dict[str, Any] = scope  # type: ignore[assignment]
    request_id: str = extra.get(REQUEST_ID_KEY, "") or _sent_id(scope) or new_request_id()
    extra[REQUEST_ID_KEY] = request_id
    add_log_fields(requestId=request_id)
    return request_id


def _sent_id(scope: Scope) -> str:
    name = REQUEST_ID_HEADER.encode()
    request_id = next((value for field, value in scope["headers"] if field == name), b"")
    return request_id.decode("latin-1")


def get_request_id(connection: Connection) -> str:
    """Return the id of this request, from the gateway or generated here."""
    request_id: str | None = connection.scope.get(REQUEST_ID_KEY)  # type: ignore[assignment]
    return request_id or new_request_id()


def get_principal(connection: Connection) -> Principal:
    """Return the principal; raise `Unauthenticated` without one."""
    principal: Principal | None = connection.scope.get(PRINCIPAL_KEY)  # type: ignore[assignment]
    if principal is None:
        raise Unauthenticated("this operation requires a login")
    return principal


def request_principal(request: HttpRequest) -> Principal:
    """Return `get_principal`, as a dependency."""
    return get_principal(request)


RequestPrincipal = NamedDependency[Principal]
"""The type of a handler's `principal`: the caller."""


def get_address(connection: Connection) -> str:
    """Return the client's IP address; empty if the gateway did not set it."""
    return connection.headers.get(CLIENT_ADDRESS_HEADER, "")


def read_address(scope: Scope) -> str:
    """Return the client's IP address from a scope."""
    return dict(scope["headers"]).get(CLIENT_ADDRESS_HEADER.encode(), b"").decode("latin-1")


def get_host(connection: Connection) -> str:
    """Return the host that the client called, with its port."""
    headers = connection.headers
    return headers.get(CALLED_HOST_HEADER, "") or headers.get("host", "")


def request_caller(request: HttpRequest) -> Caller:
    """Return the caller with address and request id, for the audit log."""
    return Caller(get_principal(request), get_address(request), get_request_id(request))


RequestCaller = NamedDependency[Caller]
"""The type of a handler's `caller`: the caller and its address."""


def wrap_success(connection: Connection, data: T | msgspec.UnsetType = msgspec.UNSET) -> Success[T]:
    """Return the open API's success envelope with `data`."""
    return Success(data=data, request_id=get_request_id(connection))


MAX_CREDENTIAL_LENGTH = 4096
"""Maximum characters of a credential; ours have 43."""
_QUERY_PARAMETER = "access_token"


def _strip_scheme(header: bytes | None, scheme: bytes) -> str | None:
    if not header or len(header) > MAX_CREDENTIAL_LENGTH:
        return None
    word, _, value = header.strip().partition(b" ")
    if word.lower() != scheme:
        return None
    return value.strip().decode("latin-1") or None


def bearer_token(header: bytes | None) -> str | None:
    """Return the token of `Authorization: Bearer` (RFC 6750 §2.1); None for another header."""
    return _strip_scheme(header, b"bearer")


def basic_login(header: bytes | None) -> tuple[str, str] | None:
    """Return user and password of `Authorization: Basic` (RFC 7617); None for another header."""
    encoded = _strip_scheme(header, b"basic")
    if encoded is None:
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (user, password) if user and colon else None


def split_query_token(query: bytes) -> tuple[str | None, bytes]:
    """Return the value of `access_token` (RFC 6750 §2.3), and the query without it."""
    if b"access" not in query and b"%" not in query:
        return None, query
    token, kept_parts = None, []
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if unquote_plus(name) == _QUERY_PARAMETER:
            token = unquote_plus(value)[:MAX_CREDENTIAL_LENGTH] or token
        else:
            kept_parts.append(part)
    return token, "&".join(kept_parts).encode("latin-1")


MAX_LOG_LINES_PER_SECOND = 200
"""Maximum log lines per second: many invalid requests must not fill the disk."""


class LogRateLimit(logging.Filter):
    """Passes at most `maximum` lines a second; the next line counts the dropped ones."""

    def __init__(self, maximum: int) -> None:
        super().__init__()
        self._maximum = maximum
        self._second = 0
        self._passed = 0
        self._missing = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is logged."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._passed = second, 0
        if self._passed >= self._maximum:
            self._missing += 1
            return False
        self._passed += 1
        if self._missing:
            record.msg = f"{record.msg} ({self._missing} similar lines were dropped)"
            self._missing = 0
        return True


log.addFilter(LogRateLimit(MAX_LOG_LINES_PER_SECOND))


def log_rejection(error: ThingwayError, method: str, where: str) -> None:
    """Log a rejected request: its method, status, error code and field, and `where`.

    `where` is a path template or the name of a route. Paths and messages are not logged, because
    both may contain secrets.
    """
    reason = f"{error.code} {error.field!r:.130}" if error.field else error.code
    log.info("rejected %s %s: %d %s", method, where or "?", error.status, reason)


def log_failure(status: int, method: str, where: str) -> None:
    """Log the error status of a service for a request that the gateway forwarded."""
    log.info("answered %s %s: %d", method, where, status)
