"""Every operation of every service, by every sort of caller: the answer follows from the guard.

Generated from the services' routes. An operation without a guard fails here, unless it is
among those that are open for a reason.
"""

from collections import defaultdict
from enum import StrEnum

import aiohttp
import httpx
import pytest

from libs.common.http.guards import WEBSOCKET, Guard, GuardedOperation
from libs.common.identity import PrincipalKind
from libs.common.identity.functions import Function
from services.gateway.routes import CredentialType, RouteTable
from services.gateway.tunnel import ROUTE_BY_PATH as TUNNELS
from tests.contract.cast import PRIVATE, Cast, list_operations, name_of

pytestmark = pytest.mark.xdist_group("contract")

OPEN = {
    "POST /oauth/token": "applications get their tokens here",
    "POST /oauth2/token": "people get their tokens here",
    "POST /user/register": "the first user of a tenant registers here; afterwards it is closed",
    "GET /user/status": "tells a console whether to show the log-in or the registration page",
    "GET /public/{name}": "icons, which consoles load without a token",
    "PUT /resource/uploads/{ticket}": "the path itself is the secret, and good once",
    "GET /resource/files/{key}": "pictures, which consoles load without a token",
    "POST /workflow/hooks/{token}": "the path itself is the secret",
    "POST /integration/hooks/{token}": "the path itself is the secret",
    **{
        f"{method} /workflow-http-in/{{access_key}}{rest}": "HTTP Basic with a tenant's credential"
        for method in ("GET", "POST", "PUT", "DELETE")
        for rest in ("", "/{rest}")
    },
    "WEBSOCKET /mqtt": "the first packet says who it is",
}
"""Operations that need no credential, and why."""
OF_GRANTS = {"GET /entity/{entity_id}/meta"}
"""Operations of every user, where one who is granted nothing at all is a 403 all the same."""
OF_EACH = {
    "/credentials/default/{credentials_type}",
    "/product/{model}",
    "/product/{model}/check",
}
"""Paths that name nothing of one tenant: each has its own."""
WITHOUT_DATA = {"/entity/{entity_id}/status"}
"""Paths where what does not exist is empty: boards may name it."""


class Seen(StrEnum):
    """How an answer counts."""

    IN = "let in"
    STRANGER = "401"
    FORBIDDEN = "403"
    FAILED = "5xx"


def seen(answer: httpx.Response) -> Seen:
    """Whether a caller was let in; 400 and 404 come from behind the guard."""
    match answer.status_code:
        case 401:
            return Seen.STRANGER
        case 403:
            return Seen.FORBIDDEN
        case status:
            return Seen.FAILED if status >= 500 else Seen.IN


def guarded(*, sockets: bool = False) -> list[tuple[GuardedOperation, Guard]]:
    """Operations with a guard: requests or sockets."""
    return [
        (one, one.guard)
        for _, one in list_operations()
        if one.guard is not None and (one.method == WEBSOCKET) is sockets
    ]


def operations_of_users() -> dict[frozenset[Function], list[tuple[GuardedOperation, Guard]]]:
    """Operations of users, by the functions that let somebody in."""
    found: dict[frozenset[Function], list[tuple[GuardedOperation, Guard]]] = defaultdict(list)
    for operation, guard in guarded():
        if guard.kind is PrincipalKind.USER:
            found[frozenset(guard.functions)].append((operation, guard))
    return found


def test_every_operation_has_a_guard(subtests: pytest.Subtests) -> None:
    """An operation is guarded, or open for a reason; the gateway asks for the same credential."""
    table = RouteTable()
    for service, operation in list_operations():
        with subtests.test(name_of(operation)):
            path = operation.path.encode()
            route = TUNNELS[path] if operation.method == WEBSOCKET else table.find(path)
            assert route is not None
            assert route.matches(path)
            assert route.upstream == service
            if operation.guard is None:
                assert name_of(operation) in OPEN
                assert route.credential is CredentialType.NONE
            else:
                assert name_of(operation) not in OPEN
                assert route.kinds == {operation.guard.kind}


def test_private_pages_are_private() -> None:
    """The gateway leads to no page that a service has for its neighbours."""
    table = RouteTable()
    assert [path for path in sorted(PRIVATE) if table.find(path.encode())] == []


def expected(guard: Guard, kind: PrincipalKind, *, super_admin: bool = False) -> Seen:
    """What a caller without functions gets; a device has no token, so it is a stranger."""
    if guard.kind is PrincipalKind.DEVICE or kind is PrincipalKind.DEVICE:
        return Seen.IN if guard.kind is kind else Seen.STRANGER
    if guard.kind is not kind:
        return Seen.FORBIDDEN
    needs = guard.super_admin or guard.functions
    return Seen.FORBIDDEN if needs and not super_admin else Seen.IN


async def test_every_operation_with_every_caller(cast: Cast, subtests: pytest.Subtests) -> None:
    """The operation's guard decides between success, 401 and 403.

    A user whose functions are others is asked in `test_matrix_of_other_functions`.
    """
    for operation, guard in guarded():
        with subtests.test(name_of(operation)):
            await _check_callers(cast, operation, guard)


async def _check_callers(cast: Cast, operation: GuardedOperation, guard: Guard) -> None:
    assert seen(await cast.ask(operation, known=True)) is Seen.STRANGER
    for caller, token, kind, super_admin in (
        ("application token", cast.api.token, PrincipalKind.APPLICATION, False),
        ("user without grants", cast.powerless.token, PrincipalKind.USER, False),
        ("super-admin", cast.admin.token, PrincipalKind.USER, True),
    ):
        if caller == "user without grants" and (guard.super_admin or guard.functions):
            continue
        due = expected(guard, kind, super_admin=super_admin)
        if caller == "user without grants" and name_of(operation) in OF_GRANTS:
            due = Seen.FORBIDDEN
        answer = await cast.ask(operation, token=token, known=due is not Seen.IN)
        assert seen(answer) is due, (caller, answer.text)
    due = expected(guard, PrincipalKind.DEVICE)
    answer = await cast.ask(operation, known=True, auth=cast.device)
    assert seen(answer) is due, ("device by its key", answer.text)


async def test_matrix_of_functions(cast: Cast, subtests: pytest.Subtests) -> None:
    """Any one of an operation's functions lets a user in."""
    rows = operations_of_users()
    for function in sorted(set().union(*rows)):
        with subtests.test(str(function)):
            await cast.hold(frozenset({function}))
            for functions, operations in rows.items():
                for operation, _ in operations if function in functions else ():
                    answer = await cast.ask(operation, token=cast.holder.token, known=False)
                    assert seen(answer) is Seen.IN, (name_of(operation), answer.text)


async def test_matrix_of_other_functions(cast: Cast, subtests: pytest.Subtests) -> None:
    """All functions together that are none of an operation's do not let a user in."""
    for functions, operations in operations_of_users().items():
        with subtests.test("-".join(sorted(functions)) or "none"):
            await cast.hold(frozenset(Function) - functions)
            for operation, guard in operations:
                answer = await cast.ask(operation, token=cast.holder.token, known=False)
                assert seen(answer) is expected(guard, PrincipalKind.USER), (
                    name_of(operation),
                    answer.text,
                )


async def test_matrix_of_tenants(cast: Cast, subtests: pytest.Subtests) -> None:
    """The super-admin of another tenant is let in, and finds nothing of this one there."""
    for operation, guard in guarded():
        with subtests.test(name_of(operation)):
            answer = await cast.ask(operation, token=cast.foreign.token, known=True)
            assert seen(answer) is expected(guard, PrincipalKind.USER, super_admin=True), (
                answer.text
            )
            if operation.path in WITHOUT_DATA:
                assert answer.json()["data"] == {}
            elif (
                "{" in operation.path
                and guard.kind is PrincipalKind.USER
                and operation.path not in OF_EACH
            ):
                assert answer.status_code == 404, answer.text


async def test_matrix_of_websockets(cast: Cast, subtests: pytest.Subtests) -> None:
    """A socket opens for whom the guard lets in; all others are 403, as consoles expect it."""
    for operation, guard in guarded(sockets=True):
        with subtests.test(name_of(operation)):
            await _check_socket(cast, operation, guard)


async def _check_socket(cast: Cast, operation: GuardedOperation, guard: Guard) -> None:
    callers = (
        ("", Seen.FORBIDDEN),
        ("no-such-token", Seen.FORBIDDEN),
        (cast.api.token, expected(guard, PrincipalKind.APPLICATION)),
        (cast.powerless.token, expected(guard, PrincipalKind.USER)),
        (cast.admin.token, expected(guard, PrincipalKind.USER, super_admin=True)),
    )
    async with aiohttp.ClientSession(str(cast.api.http.base_url)) as session:
        for token, due in callers:
            query = {"Authorization": f"Bearer {token}"}
            try:
                async with session.ws_connect(operation.path, params=query):
                    found = Seen.IN
            except aiohttp.WSServerHandshakeError as error:
                found = Seen(str(error.status))
            assert (token, found) == (token, due)


@pytest.mark.parametrize("operation", sorted(one for one in OPEN if WEBSOCKET not in one))
async def test_open_operations_read_no_credential(operation: str, cast: Cast) -> None:
    """An open operation gives the same answer with every token."""
    method, path = operation.split(" ")
    answers = set()
    for token in ("", "no-such-token", cast.api.token, cast.powerless.token):
        answer = await cast.ask(GuardedOperation(method, path, None), token=token, known=False)
        answers.add(answer.status_code)
    assert len(answers) == 1
    assert max(answers) < 500
