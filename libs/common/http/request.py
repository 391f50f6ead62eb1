"""What a handler asks of the current request."""

import os
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.enums import ScopeType
from litestar.types import HTTPScope, Scope

from libs.common.envelope import Success
from libs.common.errors import Unauthenticated
from libs.common.identity import Caller, Principal
from libs.common.telemetry.logs import name_lines

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


def caller_of(connection: Connection) -> Caller:
    """Who calls, from where and under which request id: what an audit log records."""
    return Caller(principal_of(connection), address_of(connection), request_id_of(connection))


def ok(connection: Connection, data: T | msgspec.UnsetType = msgspec.UNSET) -> Success[T]:
    """The open API's success envelope around `data`."""
    return Success(data=data, request_id=request_id_of(connection))
