"""`/user`: the current user, the first user of a tenant, and the users of the caller's tenant."""

from dataclasses import dataclass

from litestar import Router
from litestar.di import NamedDependency
from litestar.openapi.spec import Operation
from litestar.params import FromPath, JSONBody

from libs.common.http import HttpRequest, RequestCaller, Requester
from libs.common.http.console import Page, delete, get, ids_of, post, put
from libs.common.http.guards import super_admins, users
from libs.common.http.ids import PathId
from libs.common.http.request import address_of, principal_of, request_id_of
from services.auth.accounts.tenants import DEFAULT_TENANT
from services.auth.menus import ShownMenu, flat
from services.auth.tenants.console import named_tenant, tenant_parameter
from services.auth.users.account import AccountService, OwnSessions
from services.auth.users.directory import UserDirectory
from services.auth.users.schemas import (
    AskPermission,
    ChangeOwnPassword,
    ChangePassword,
    DeleteUsers,
    EditUser,
    OwnSession,
    Permission,
    PermissionAnswer,
    Profile,
    RegisterUser,
    SetStatus,
    ShownUser,
    TenantStatus,
    UserSearch,
)
from services.auth.users.service import UserService, unknown_user

Accounts = NamedDependency[AccountService]
Directory = NamedDependency[UserDirectory]
People = NamedDependency[UserService]
Sessions = NamedDependency[OwnSessions]


@dataclass(frozen=True)
class UserHandlers:
    """What the operations on users need."""

    accounts: AccountService
    directory: UserDirectory
    people: UserService
    sessions: OwnSessions


@dataclass
class TenantOperation(Operation):
    """An operation without a token; a header names the tenant."""

    def __post_init__(self) -> None:
        self.parameters = [tenant_parameter()]


@post("/register", operation_class=TenantOperation, security=[{}], waits=True)
async def register_user(
    request: HttpRequest, accounts: Accounts, data: JSONBody[RegisterUser]
) -> None:
    """Become a tenant's first user and super-admin; afterwards registration is closed (403)."""
    address = address_of(request)
    tenant = named_tenant(request) or DEFAULT_TENANT
    await accounts.register(tenant, data, address, request_id_of(request))


@get("/status", operation_class=TenantOperation, security=[{}])
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
    caller: RequestCaller, accounts: Accounts, data: JSONBody[ChangeOwnPassword]
) -> None:
    """Change one's own password; all of one's tokens end at once, the one used here too."""
    await accounts.change_password(caller, data.old_password, data.new_password)


@get("/sessions", guards=[users])
async def list_own_sessions(principal: Requester, sessions: Sessions) -> list[OwnSession]:
    """One's own log-ins that last, 100 at most; the one that asks comes first."""
    return await sessions.list(principal)


@delete("/sessions/{session_id:str}", guards=[users])
async def end_own_session(
    caller: RequestCaller, sessions: Sessions, session_id: FromPath[str]
) -> None:
    """End a session: its tokens and live updates at once; `current` is the one that asks."""
    await sessions.end(caller, session_id)


@post("/members/search")
async def search_users(
    principal: Requester, directory: Directory, data: JSONBody[UserSearch | None] = None
) -> list[ShownUser] | Page[ShownUser]:
    """Search users by part of their nickname or e-mail address."""
    wanted = data or UserSearch()
    found, total = await directory.search(principal.tenant, wanted)
    return wanted.listed(found, total)


@post(
    "/members",
    guards=[super_admins],
    example={"email": "ann@example.com", "nickname": "Ann", "password": "Secret123"},
    waits=True,
)
async def create_user(caller: RequestCaller, people: People, data: JSONBody[RegisterUser]) -> None:
    """Add a user without roles."""
    await people.create(caller, data)


@put("/members/{user_id:str}", guards=[super_admins])
async def update_user(
    caller: RequestCaller, people: People, user_id: PathId, data: JSONBody[EditUser]
) -> None:
    """Set a user's e-mail address and nickname."""
    await people.update(caller, user_id, data)


@put("/members/{user_id:str}/change-password", guards=[super_admins], waits=True)
async def set_user_password(
    caller: RequestCaller, people: People, user_id: PathId, data: JSONBody[ChangePassword]
) -> None:
    """Give a user another password; its tokens end at once."""
    await people.set_password(caller, user_id, data.password)


@put("/members/{user_id:str}/status", guards=[super_admins])
async def set_user_status(
    caller: RequestCaller, people: People, user_id: PathId, data: JSONBody[SetStatus]
) -> None:
    """Disable a user, whose tokens end at once, or enable it again."""
    await people.set_enabled(caller, user_id, enabled=data.enabled)


@delete("/members/{user_id:str}", guards=[super_admins])
async def delete_user(caller: RequestCaller, people: People, user_id: PathId) -> dict[str, str]:
    """Delete a user, whose tokens end at once."""
    if not await people.delete(caller, [user_id], "user_id"):
        raise unknown_user(user_id)
    return {}


@post("/batch-delete", guards=[super_admins])
async def delete_users(
    caller: RequestCaller, people: People, data: JSONBody[DeleteUsers]
) -> dict[str, str]:
    """Delete users, whose tokens end at once; unknown ids are passed over."""
    await people.delete(caller, ids_of(data.user_id_list))
    return {}


@get("/members/{user_id:str}/menus")
async def list_user_menus(
    principal: Requester, directory: Directory, user_id: PathId
) -> list[ShownMenu]:
    """The pages and functions that are open to a user, one by one."""
    return flat(await directory.menus(principal, user_id))


@post("/members/{user_id:str}/permission")
async def ask_user_permission(
    request: HttpRequest, directory: Directory, user_id: PathId, data: JSONBody[AskPermission]
) -> PermissionAnswer:
    """Tell whether a user may read a resource, by itself or by what it belongs to."""
    held = await directory.has_permission(principal_of(request).tenant, user_id, data)
    return PermissionAnswer(
        data=Permission(held), request_id=request_id_of(request), has_permission=held
    )


ACCOUNT_ROUTER = Router(
    "/user",
    route_handlers=[
        register_user,
        get_tenant_status,
        get_current_user,
        change_own_password,
        list_own_sessions,
        end_own_session,
    ],
    tags=["Authentication and current user"],
)
"""`/user`: the current user, and the first user of a tenant."""
USER_ROUTER = Router(
    "/user",
    guards=[users],
    route_handlers=[
        search_users,
        create_user,
        update_user,
        set_user_password,
        set_user_status,
        delete_user,
        delete_users,
        list_user_menus,
        ask_user_permission,
    ],
    tags=["Users"],
)
"""`/user/members`: the users of the caller's tenant."""
