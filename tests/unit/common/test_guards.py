"""Guards: who is let in, and what can be read of them."""

from types import SimpleNamespace
from typing import Any

import pytest
from litestar import Litestar, Router, WebSocket, get, post, websocket
from litestar.openapi import OpenAPIConfig
from litestar.testing import TestClient

from libs.common.errors import Forbidden, Unauthenticated
from libs.common.http.document import CALLER_EXTENSION, DocumentPlugin
from libs.common.http.guards import (
    Guard,
    GuardedOperation,
    allow_holders,
    applications,
    commanding_users,
    devices,
    list_guarded_operations,
    super_admins,
    users,
)
from libs.common.http.request import PRINCIPAL_KEY
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.functions import Function

VIEW, EDIT = Function.DEVICE_VIEW, Function.DEVICE_EDIT


def principal(
    kind: PrincipalKind = PrincipalKind.USER, *functions: str, super_admin: bool = False
) -> Principal:
    return Principal(kind, "t", "1", functions=frozenset(functions), super_admin=super_admin)


async def lets_in(guard: Guard, caller: Principal | None) -> bool:
    connection: Any = SimpleNamespace(scope={PRINCIPAL_KEY: caller})
    handler: Any = None
    try:
        await guard(connection, handler)
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize(
    ("guard", "caller", "let_in"),
    [
        (applications, principal(PrincipalKind.APPLICATION), True),
        (applications, principal(super_admin=True), False),
        (devices, principal(PrincipalKind.DEVICE), True),
        (devices, principal(PrincipalKind.APPLICATION), False),
        (users, principal(), True),
        (users, principal(PrincipalKind.APPLICATION), False),
        (super_admins, principal(super_admin=True), True),
        (super_admins, principal(PrincipalKind.USER, *Function), False),
        (allow_holders(VIEW, EDIT), principal(PrincipalKind.USER, EDIT), True),
        (allow_holders(VIEW), principal(PrincipalKind.USER, EDIT), False),
        (allow_holders(VIEW), principal(super_admin=True), True),
    ],
)
async def test_guard_lets_in(guard: Guard, caller: Principal, let_in: bool) -> None:
    """A guard asks for the kind, and of users for one of the functions or for everything."""
    assert await lets_in(guard, caller) is let_in


@pytest.mark.parametrize(
    ("function", "viewers_may_command", "let_in"),
    [
        (Function.DEVICE_EDIT, False, True),
        (Function.ENTITY_DATA_EDIT, False, True),
        (Function.DASHBOARD_EDIT, False, True),
        (Function.WORKFLOW_EDIT, False, True),
        (Function.DEVICE_VIEW, False, False),
        (Function.WORKFLOW_ADD, False, False),
        (Function.DEVICE_VIEW, True, True),
        (Function.INTEGRATION_VIEW, True, True),
        (Function.PRODUCT_VIEW, True, False),
    ],
)
async def test_viewers_command_only_with_the_setting(
    function: Function, viewers_may_command: bool, let_in: bool
) -> None:
    """The setting belongs to their tenant."""
    caller = Principal(
        PrincipalKind.USER,
        "t",
        "1",
        functions=frozenset({function}),
        viewers_may_command=viewers_may_command,
    )
    assert await lets_in(commanding_users, caller) is let_in
    assert caller.may_command is let_in


async def test_requests_without_a_principal_are_rejected() -> None:
    """Every guard rejects them."""
    with pytest.raises(Unauthenticated):
        await lets_in(users, None)


def service() -> Litestar:
    @get("/open", sync_to_thread=False)
    def everybody() -> None: ...

    @post("/edit/{name:str}", guards=[allow_holders(VIEW, EDIT)], sync_to_thread=False)
    def edit() -> None: ...

    @get("/inherits", include_in_schema=False, sync_to_thread=False)
    def inherits() -> None: ...

    @websocket("/live", guards=[users])
    async def live(socket: WebSocket[Any, Any, Any]) -> None: ...

    return Litestar(
        [everybody, edit, live, Router("/in", route_handlers=[inherits], guards=[super_admins])],
        openapi_config=OpenAPIConfig("t", "1", path="/schema", render_plugins=[DocumentPlugin()]),
    )


def test_guards_can_be_read() -> None:
    """Every operation is listed with its guard, or that of its router; without one too."""
    found = [
        one for one in list_guarded_operations(service()) if not one.path.startswith("/schema")
    ]
    assert sorted(found, key=lambda one: one.path) == [
        GuardedOperation("POST", "/edit/{name}", allow_holders(VIEW, EDIT)),
        GuardedOperation("GET", "/in/inherits", super_admins),
        GuardedOperation("WEBSOCKET", "/live", users),
        GuardedOperation("GET", "/open", None),
    ]


def test_the_document_contains_the_permitted_callers() -> None:
    """They are those of the guards of the operations."""
    with TestClient(service()) as client:
        paths = client.get("/schema/openapi.json").json()["paths"]
    assert paths["/edit/{name}"]["post"][CALLER_EXTENSION] == {
        "kind": "user",
        "functions": ["device.edit", "device.view"],
    }
    assert CALLER_EXTENSION not in paths["/open"]["get"]
