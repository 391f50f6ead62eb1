"""Guards: the callers who may use an operation. Every operation has one.

A guard is a readable value: from it, the permission matrix test derives the expected answer for
each kind of caller. The test fails for an operation without a guard.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from litestar import Litestar
from litestar.connection import ASGIConnection
from litestar.enums import HttpMethod
from litestar.handlers.base import BaseRouteHandler
from litestar.routes import HTTPRoute

from libs.common.errors import Forbidden
from libs.common.http.request import get_principal
from libs.common.identity.functions import COMMAND_FUNCTIONS, Function
from libs.common.identity.principal import PrincipalKind

_REASON_BY_REQUIRED_KIND = {
    PrincipalKind.APPLICATION: "this operation is for applications",
    PrincipalKind.DEVICE: "this operation is for devices",
    PrincipalKind.USER: "this operation is for users",
}


@dataclass(frozen=True)
class Guard:
    """Permits callers of one kind. Users also need any of `functions`."""

    kind: PrincipalKind
    functions: frozenset[Function] = field(default_factory=frozenset)
    """Empty permits all users."""
    super_admin: bool = False
    """Permits only super-admins."""
    commands: bool = False
    """Also permits viewers if the tenant's setting "Viewers may command devices" is on."""

    async def __call__(self, connection: ASGIConnection, handler: BaseRouteHandler) -> None:  # type: ignore[type-arg]
        """Raise `Unauthenticated` or `Forbidden` if the caller has no permission.

        Async, because Litestar would run a plain function in a thread for each request.
        """
        principal = get_principal(connection)
        if principal.kind is not self.kind:
            raise Forbidden(_REASON_BY_REQUIRED_KIND[self.kind])
        if self.super_admin and not principal.super_admin:
            raise Forbidden("this operation is for super-admins")
        if self.functions and not principal.may(*self.functions):
            if self.commands and principal.may_command:
                return
            raise Forbidden("the user does not have permission")


applications = Guard(PrincipalKind.APPLICATION)
devices = Guard(PrincipalKind.DEVICE)
users = Guard(PrincipalKind.USER)
"""Any logged-in user."""
super_admins = Guard(PrincipalKind.USER, super_admin=True)


commanding_users = Guard(PrincipalKind.USER, COMMAND_FUNCTIONS, commands=True)
"""Users who may set values and call services (decision 0048)."""


def allow_holders(*functions: Function) -> Guard:
    """Return a guard for users with any of `functions`, and super-admins."""
    return Guard(PrincipalKind.USER, frozenset(functions))


WEBSOCKET = "WEBSOCKET"


class GuardedOperation(NamedTuple):
    """An operation of a service and its guard."""

    method: str
    """An HTTP method, or `WEBSOCKET`."""
    path: str
    """Path of the route as in the OpenAPI document: `/user/roles/{role_id}`."""
    guard: Guard | None
    """None when the operation is public, or lacks a guard."""


def list_guarded_operations(app: Litestar) -> Iterator[GuardedOperation]:
    """Return all operations of a service with their guards, except OPTIONS.

    Sorted by path and method, because Litestar keeps the handlers of a path in a set.
    """
    return iter(sorted(_operations(app), key=lambda operation: (operation.path, operation.method)))


def _operations(app: Litestar) -> Iterator[GuardedOperation]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                for method in handler.http_methods - {HttpMethod.OPTIONS}:
                    yield GuardedOperation(str(method), route.path_format, _find_guard(handler))
        else:
            yield GuardedOperation(WEBSOCKET, route.path_format, _find_guard(route.route_handler))


def _find_guard(handler: BaseRouteHandler) -> Guard | None:
    """Return the innermost guard of a handler."""
    guards = [guard for guard in handler.resolve_guards() if isinstance(guard, Guard)]
    return guards[-1] if guards else None
