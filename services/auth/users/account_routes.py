"""`/user`: one's own account, and the first user of a tenant."""

from dataclasses import dataclass
from typing import Any

from litestar import Request, get, post, put
from litestar.di import NamedDependency
from litestar.openapi.spec import Operation
from litestar.params import JSONBody

from libs.common.http.console import CONSOLE_REFUSALS, Answer, answer
from libs.common.http.guards import users
from libs.common.http.request import (
    CLIENT_ADDRESS_HEADER,
    caller_of,
    principal_of,
    request_id_of,
)
from services.auth.sign_in.routes import tenant_parameter
from services.auth.sign_in.tenants import named_tenant
from services.auth.tenants.seed import DEFAULT_TENANT
from services.auth.users.account import AccountService
from services.auth.users.directory import UserDirectory
from services.auth.users.schemas import (
    ChangeOwnPassword,
    Profile,
    RegisterUser,
    TenantStatus,
)

HttpRequest = Request[Any, Any, Any]
Accounts = NamedDependency[AccountService]
Directory = NamedDependency[UserDirectory]


@dataclass
class OfTenant(Operation):
    """An operation without a token; a header names the tenant."""

    def __post_init__(self) -> None:
        self.parameters = [tenant_parameter()]


_SHARED: dict[str, Any] = {
    "responses": CONSOLE_REFUSALS,
    "status_code": 200,
    "tags": ["Authentication and current user"],
}
_OPEN: dict[str, Any] = {**_SHARED, "security": [{}], "operation_class": OfTenant}


@post("/user/register", **_OPEN)
async def register(
    request: HttpRequest, accounts: Accounts, data: JSONBody[RegisterUser]
) -> Answer[None]:
    """Become a tenant's first user and super-admin; afterwards registration is closed (403)."""
    address = request.headers.get(CLIENT_ADDRESS_HEADER, "")
    tenant = named_tenant(request) or DEFAULT_TENANT
    await accounts.register(tenant, data, address, request_id_of(request))
    return answer(request)


@get("/user/status", **_OPEN)
async def get_status(request: HttpRequest, accounts: Accounts) -> Answer[TenantStatus]:
    """Tell whether a tenant has its first user."""
    tenant = named_tenant(request) or DEFAULT_TENANT
    return answer(request, TenantStatus(init=await accounts.has_users(tenant)))


@get("/user", guards=[users], **_SHARED)
async def get_profile(request: HttpRequest, directory: Directory) -> Answer[Profile]:
    """Who is logged in, and the pages and functions that are open to it."""
    return answer(request, await directory.profile(principal_of(request)))


@put("/user/password", guards=[users], **_SHARED)
async def change_own_password(
    request: HttpRequest, accounts: Accounts, data: JSONBody[ChangeOwnPassword]
) -> Answer[None]:
    """Change one's own password; all of one's tokens end at once, the one used here too."""
    await accounts.change_password(caller_of(request), data.old_password, data.new_password)
    return answer(request)


ROUTES = (register, get_status, get_profile, change_own_password)
