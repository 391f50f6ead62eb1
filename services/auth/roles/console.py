"""`/user/roles`: roles, their menus and their users, for super-admins."""

from dataclasses import dataclass
from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter

from libs.common.http import RequestCaller
from libs.common.http.console import Page, delete, distinct_ids, get, post, put
from libs.common.http.guards import super_admins
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.identity import Caller
from services.auth.accounts.roles import Role
from services.auth.menus import MenuResponse, flatten_menus
from services.auth.roles.service import (
    CandidateUser,
    CreatedRole,
    KeywordSearch,
    MenuIds,
    RoleCounts,
    RoleMember,
    RoleResponse,
    RoleService,
    SaveRole,
    UserIds,
)

RoleServiceDependency = NamedDependency[RoleService]


@dataclass(frozen=True)
class RoleHandlerDependencies:
    """Dependencies of the operations on roles."""

    roles: RoleService


SearchBody = JSONBody[KeywordSearch | None]
"""An optional body with a keyword and a page. Without a body, all results are listed."""

Keyword = Annotated[str | None, QueryParameter(max_length=255)]
PageSize = Annotated[int | None, QueryParameter(ge=1)]
PageNumber = Annotated[int | None, QueryParameter(ge=1, le=1_000_000_000)]


@post(example={"name": "Caretakers", "description": "Who look after the roofs"})
async def create_role(
    caller: RequestCaller, roles: RoleServiceDependency, data: JSONBody[SaveRole]
) -> CreatedRole:
    """Create a role without users, menus and resources."""
    return CreatedRole(str(await roles.create(caller, data)))


@put("/{role_id:str}")
async def update_role(
    caller: RequestCaller, roles: RoleServiceDependency, role_id: PathId, data: JSONBody[SaveRole]
) -> dict[str, str]:
    """Change the name and description of a role."""
    await roles.update(caller, role_id, data)
    return {}


@delete("/{role_id:str}")
async def delete_role(
    caller: RequestCaller, roles: RoleServiceDependency, role_id: PathId
) -> dict[str, str]:
    """Delete a role without users, and its grants."""
    await roles.delete(caller, role_id)
    return {}


@post("/search")
async def search_roles(
    caller: RequestCaller, roles: RoleServiceDependency, data: SearchBody = None
) -> list[RoleResponse] | Page[RoleResponse]:
    """Search roles by part of their name."""
    return await _search(caller, roles, data or KeywordSearch())


@get("/search", summary="Search roles by query parameters")
async def search_roles_by_get(
    caller: RequestCaller,
    roles: RoleServiceDependency,
    keyword: Keyword = None,
    page_size: PageSize = None,
    page_number: PageNumber = None,
) -> list[RoleResponse] | Page[RoleResponse]:
    """Search roles by part of their name.

    Same as `POST /user/roles/search`, for clients that use GET.
    """
    request = KeywordSearch(keyword=keyword, page_size=page_size, page_number=page_number)
    return await _search(caller, roles, request)


@get("/{role_id:str}/menus")
async def list_role_menus(
    caller: RequestCaller, roles: RoleServiceDependency, role_id: PathId
) -> list[MenuResponse]:
    """List the menus of a role that the caller's console supports."""
    return flatten_menus(await roles.list_menus(caller, role_id))


@post("/{role_id:str}/associate-menu")
async def set_role_menus(
    caller: RequestCaller, roles: RoleServiceDependency, role_id: PathId, data: JSONBody[MenuIds]
) -> dict[str, str]:
    """Replace the menus of a role.

    Menus that the caller's console does not support stay assigned.
    """
    await roles.set_menus(caller, role_id, distinct_ids(data.menu_ids))
    return {}


@post("/{role_id:str}/members")
async def list_role_members(
    caller: RequestCaller, roles: RoleServiceDependency, role_id: PathId, data: SearchBody = None
) -> list[RoleMember] | Page[RoleMember]:
    """List the users of a role, filtered by part of their email or nickname."""
    return await _members(caller, roles, role_id, data or KeywordSearch())


@get("/{role_id:str}/members", summary="List role members by query parameters")
async def list_role_members_by_get(
    caller: RequestCaller,
    roles: RoleServiceDependency,
    role_id: PathId,
    keyword: Keyword = None,
    page_size: PageSize = None,
    page_number: PageNumber = None,
) -> list[RoleMember] | Page[RoleMember]:
    """List the users of a role, filtered by part of their email or nickname.

    Same as the POST operation, for clients that use GET.
    """
    request = KeywordSearch(keyword=keyword, page_size=page_size, page_number=page_number)
    return await _members(caller, roles, role_id, request)


@post("/{role_id:str}/undistributed-users")
async def list_other_users(
    caller: RequestCaller, roles: RoleServiceDependency, role_id: PathId, data: SearchBody = None
) -> list[CandidateUser] | Page[CandidateUser]:
    """List the users who do not have the role."""
    search = data or KeywordSearch()
    found, total = await roles.list_members(caller, role_id, search, having=False)
    rows = [
        CandidateUser(user_id=str(person.id), nickname=person.nickname, email=person.email)
        for person in found
    ]
    return search.listed(rows, total)


@post("/{role_id:str}/associate-user")
async def add_role_members(
    caller: RequestCaller, roles: RoleServiceDependency, role_id: PathId, data: JSONBody[UserIds]
) -> dict[str, str]:
    """Assign a role to users."""
    await roles.add_members(caller, role_id, distinct_ids(data.user_ids))
    return {}


@post("/{role_id:str}/disassociate-user")
async def remove_role_members(
    caller: RequestCaller, roles: RoleServiceDependency, role_id: PathId, data: JSONBody[UserIds]
) -> dict[str, str]:
    """Remove a role from users."""
    await roles.remove_members(caller, role_id, distinct_ids(data.user_ids))
    return {}


async def _search(
    caller: Caller, roles: RoleService, request: KeywordSearch
) -> list[RoleResponse] | Page[RoleResponse]:
    rows, total = await roles.search(caller, request)
    return request.listed([_role_response(role, counts) for role, counts in rows], total)


def _role_response(role: Role, counts: RoleCounts) -> RoleResponse:
    return RoleResponse.from_fields(
        role,
        role_id=str(role.id),
        user_role_count=str(counts.users),
        role_integration_count=str(counts.integrations),
    )


async def _members(
    caller: Caller, roles: RoleService, role_id: int, request: KeywordSearch
) -> list[RoleMember] | Page[RoleMember]:
    found, total = await roles.list_members(caller, role_id, request)
    rows = [
        RoleMember(
            role_id=str(role_id),
            user_id=str(person.id),
            user_nickname=person.nickname,
            user_email=person.email,
        )
        for person in found
    ]
    return request.listed(rows, total)


ROUTER = route_operations(globals(), "/user/roles", guards=[super_admins], tags=["Roles"])
