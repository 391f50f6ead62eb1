"""What a handler asks of the current request."""

import os
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.connection import ASGIConnection

from libs.common.envelope import Success
from libs.common.errors import Unauthenticated
from libs.common.identity import Caller, Principal

T = TypeVar("T")

Connection = ASGIConnection[Any, Any, Any, Any]
HttpRequest = Request[Any, Any, Any]

REQUEST_ID_HEADER = "x-request-id"
CLIENT_ADDRESS_HEADER = "x-real-ip"
"""The client's own address; the gateway sets it and strips what came from outside."""
REQUEST_ID = "thingway.request_id"
PRINCIPAL = "thingway.principal"


def new_request_id() -> str:
    """32 lowercase hex digits, as the open API's samples show."""
    return os.urandom(16).hex()


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


def address_of(connection: Connection) -> str:
    """The client's own address, empty when the gateway did not say it."""
    return connection.headers.get(CLIENT_ADDRESS_HEADER, "")


def caller_of(connection: Connection) -> Caller:
    """Who calls, from where and under which request id: what an audit log records."""
    return Caller(principal_of(connection), address_of(connection), request_id_of(connection))


def ok(connection: Connection, data: T | msgspec.UnsetType = msgspec.UNSET) -> Success[T]:
    """The open API's success envelope around `data`."""
    return Success(data=data, requestId=request_id_of(connection))
