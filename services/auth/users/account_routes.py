"""`/user`: one's own account, and the first user of a tenant."""

from dataclasses import dataclass

from litestar import Router
from litestar.di import NamedDependency
from litestar.openapi.spec import Operation
from litestar.params import FromPath, JSONBody

from libs.common.http import HttpRequest, Requester
from libs.common.http.console import delete, get, post, put
from libs.common.http.guards import users
from libs.common.http.operations import operations_of
from libs.common.http.request import (
    address_of,
    caller_of,
    request_id_of,
)
from services.auth.accounts.tenants import DEFAULT_TENANT
from services.auth.tenants.header import named_tenant, tenant_parameter
from services.auth.users.account import AccountService
from services.auth.users.directory import UserDirectory
from services.auth.users.schemas import (
    ChangeOwnPassword,
    OwnSession,
    Profile,
    RegisterUser,
    TenantStatus,
)
from services.auth.users.sessions import OwnSessions

Accounts = NamedDependency[AccountService]
Directory = NamedDependency[UserDirectory]


@dataclass
class OfTenant(Operation):
    """An operation without a token; a header names the tenant."""

    def __post_init__(self) -> None:
        self.parameters = [tenant_parameter()]


@post("/register", operation_class=OfTenant, security=[{}], waits=True)
async def register_user(
    request: HttpRequest, accounts: Accounts, data: JSONBody[RegisterUser]
) -> None:
    """Become a tenant's first user and super-admin; afterwards registration is closed (403)."""
    address = address_of(request)
    tenant = named_tenant(request) or DEFAULT_TENANT
    await accounts.register(tenant, data, address, request_id_of(request))


@get("/status", operation_class=OfTenant, security=[{}])
async def get_tenant_status(request: HttpRequest, accounts: Accounts) -> TenantStatus:
    """Tell whether a tenant has its first user."""
    tenant = named_tenant(request) or DEFAULT_TENANT
    return TenantStatus(init=await accounts.has_users(tenant))


@get(guards=[users])
async def get_current_user(principal: Requester, directory: Directory) -> Profile:
    """Who is logged in, and the pages and functions that are open to it."""
    return await directory.profile(principal)


@put("/password", guards=[users], waits=True)
async def change_own_password(
    request: HttpRequest, accounts: Accounts, data: JSONBody[ChangeOwnPassword]
) -> None:
    """Change one's own password; all of one's tokens end at once, the one used here too."""
    await accounts.change_password(caller_of(request), data.old_password, data.new_password)


@get("/sessions", guards=[users])
async def list_own_sessions(
    principal: Requester, sessions: NamedDependency[OwnSessions]
) -> list[OwnSession]:
    """One's own log-ins that last, 100 at most; the one that asks comes first."""
    return await sessions.list(principal)


@delete("/sessions/{session_id:str}", guards=[users])
async def end_own_session(
    request: HttpRequest, sessions: NamedDependency[OwnSessions], session_id: FromPath[str]
) -> None:
    """End a session: its tokens and live updates at once; `current` is the one that asks."""
    await sessions.end(caller_of(request), session_id)


ROUTER = Router(
    "/user", route_handlers=operations_of(globals()), tags=["Authentication and current user"]
)
