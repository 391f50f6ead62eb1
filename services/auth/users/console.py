"""`/user`: the current user, a tenant's first user, and the tenant's users."""

from dataclasses import dataclass

from litestar.di import NamedDependency
from litestar.openapi.spec import Operation
from litestar.params import FromPath, JSONBody

from libs.common.http import HttpRequest, RequestCaller, RequestPrincipal
from libs.common.http.console import Page, delete, distinct_ids, get, post, put
from libs.common.http.guards import super_admins, users
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.http.request import get_address, get_principal, get_request_id
from services.auth.accounts.tenants import DEFAULT_TENANT
from services.auth.menus import MenuResponse, flatten_menus
from services.auth.tenants.console import build_tenant_parameter, read_tenant_header
from services.auth.users.account import AccountService, CallerSessions
from services.auth.users.directory import UserDirectory
from services.auth.users.schemas import (
    ChangeOwnPassword,
    ChangePassword,
    CheckPermission,
    DeleteUsers,
    EditUser,
    Permission,
    PermissionAnswer,
    Profile,
    RegisterUser,
    SetStatus,
    TenantStatus,
    UserResponse,
    UserSearch,
    UserSession,
)
from services.auth.users.service import UserService, user_not_found_error

AccountServiceDependency = NamedDependency[AccountService]
UserDirectoryDependency = NamedDependency[UserDirectory]
UserServiceDependency = NamedDependency[UserService]
CallerSessionsDependency = NamedDependency[CallerSessions]


@dataclass(frozen=True)
class UserHandlerDependencies:
    """Dependencies of the operations on users."""

    account_service: AccountService
    directory: UserDirectory
    user_service: UserService
    sessions: CallerSessions


@dataclass
class TenantHeaderOperation(Operation):
    """An operation without a token. A header names the tenant."""

    def __post_init__(self) -> None:
        self.parameters = [build_tenant_parameter()]


@post("/register", operation_class=TenantHeaderOperation, security=[{}], waits=True)
async def register_user(
    request: HttpRequest, account_service: AccountServiceDependency, data: JSONBody[RegisterUser]
) -> None:
    """Register a tenant's first user, its super-admin. Later calls return 403."""
    address = get_address(request)
    tenant = read_tenant_header(request) or DEFAULT_TENANT
    await account_service.register_first_user(tenant, data, address, get_request_id(request))


@get("/status", operation_class=TenantHeaderOperation, security=[{}])
async def get_tenant_status(
    request: HttpRequest, account_service: AccountServiceDependency
) -> TenantStatus:
    """Get whether a tenant has its first user."""
    tenant = read_tenant_header(request) or DEFAULT_TENANT
    return TenantStatus(init=await account_service.has_users(tenant))


@get(guards=[users])
async def get_current_user(
    principal: RequestPrincipal, directory: UserDirectoryDependency
) -> Profile:
    """Get the current user with the available pages and functions."""
    return await directory.get_profile(principal)


@put("/password", guards=[users], waits=True)
async def change_own_password(
    caller: RequestCaller,
    account_service: AccountServiceDependency,
    data: JSONBody[ChangeOwnPassword],
) -> None:
    """Change the caller's password and revoke all tokens of the caller immediately."""
    await account_service.change_password(caller, data.old_password, data.new_password)


@get("/sessions", guards=[users])
async def list_own_sessions(
    principal: RequestPrincipal, sessions: CallerSessionsDependency
) -> list[UserSession]:
    """List up to 100 active sessions of the caller, the current one first."""
    return await sessions.list(principal)


@delete("/sessions/{session_id:str}", guards=[users])
async def end_own_session(
    caller: RequestCaller, sessions: CallerSessionsDependency, session_id: FromPath[str]
) -> None:
    """End a session with its tokens and live updates.

    The id `current` stands for the session of this request.
    """
    await sessions.end(caller, session_id)


ACCOUNT_ROUTER = route_operations(globals(), "/user", tags=["Authentication and current user"])
"""`/user`: the current user, and the first user of a tenant."""


@post("/members/search")
async def search_users(
    principal: RequestPrincipal,
    directory: UserDirectoryDependency,
    data: JSONBody[UserSearch | None] = None,
) -> list[UserResponse] | Page[UserResponse]:
    """Search users by part of their nickname or email address."""
    search = data or UserSearch()
    rows, total = await directory.search(principal.tenant, search)
    return search.listed(rows, total)


@post(
    "/members",
    guards=[super_admins],
    example={"email": "ann@example.com", "nickname": "Ann", "password": "Secret123"},
    waits=True,
)
async def create_user(
    caller: RequestCaller, user_service: UserServiceDependency, data: JSONBody[RegisterUser]
) -> None:
    """Add a user without roles."""
    await user_service.create(caller, data)


@put("/members/{user_id:str}", guards=[super_admins])
async def update_user(
    caller: RequestCaller,
    user_service: UserServiceDependency,
    user_id: PathId,
    data: JSONBody[EditUser],
) -> None:
    """Change a user's email address and nickname."""
    await user_service.update(caller, user_id, data)


@put("/members/{user_id:str}/change-password", guards=[super_admins], waits=True)
async def set_user_password(
    caller: RequestCaller,
    user_service: UserServiceDependency,
    user_id: PathId,
    data: JSONBody[ChangePassword],
) -> None:
    """Set a user's password and revoke the user's tokens immediately."""
    await user_service.set_password(caller, user_id, data.password)


@put("/members/{user_id:str}/status", guards=[super_admins])
async def set_user_status(
    caller: RequestCaller,
    user_service: UserServiceDependency,
    user_id: PathId,
    data: JSONBody[SetStatus],
) -> None:
    """Enable a user, or disable it and revoke its tokens immediately."""
    await user_service.set_enabled(caller, user_id, enabled=data.enabled)


@delete("/members/{user_id:str}", guards=[super_admins])
async def delete_user(
    caller: RequestCaller, user_service: UserServiceDependency, user_id: PathId
) -> dict[str, str]:
    """Delete a user and revoke its tokens immediately."""
    if not await user_service.delete(caller, [user_id], "user_id"):
        raise user_not_found_error(user_id)
    return {}


@post("/batch-delete", guards=[super_admins])
async def delete_users(
    caller: RequestCaller, user_service: UserServiceDependency, data: JSONBody[DeleteUsers]
) -> dict[str, str]:
    """Delete users and revoke their tokens immediately. Unknown ids are ignored."""
    await user_service.delete(caller, distinct_ids(data.user_id_list))
    return {}


@get("/members/{user_id:str}/menus")
async def list_user_menus(
    principal: RequestPrincipal, directory: UserDirectoryDependency, user_id: PathId
) -> list[MenuResponse]:
    """List the pages and functions available to a user."""
    return flatten_menus(await directory.list_menus(principal, user_id))


@post("/members/{user_id:str}/permission", summary="Check user permission")
async def ask_user_permission(
    request: HttpRequest,
    directory: UserDirectoryDependency,
    user_id: PathId,
    data: JSONBody[CheckPermission],
) -> PermissionAnswer:
    """Get whether a user may read a resource.

    A grant of the resource's device, group or integration is sufficient, too.
    """
    is_permitted = await directory.has_permission(get_principal(request).tenant, user_id, data)
    return PermissionAnswer(
        data=Permission(is_permitted),
        request_id=get_request_id(request),
        has_permission=is_permitted,
    )


USER_ROUTER = route_operations(globals(), "/user", guards=[users], tags=["Users"])
"""`/user/members`: the users of the caller's tenant."""
