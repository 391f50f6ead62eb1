"""`/user/members`: the users of the caller's tenant."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import HttpRequest, Requester
from libs.common.http.console import Page, delete, get, ids_of, post, put
from libs.common.http.guards import super_admins, users
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.http.request import caller_of, principal_of, request_id_of
from services.auth.menus.service import ShownMenu, flat
from services.auth.users.directory import UserDirectory
from services.auth.users.schemas import (
    AskPermission,
    ChangePassword,
    DeleteUsers,
    EditUser,
    Permission,
    PermissionAnswer,
    RegisterUser,
    SetStatus,
    ShownUser,
    UserSearch,
)
from services.auth.users.service import UserService

Directory = NamedDependency[UserDirectory]
People = NamedDependency[UserService]


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
async def create_user(request: HttpRequest, people: People, data: JSONBody[RegisterUser]) -> None:
    """Add a user without roles."""
    await people.create(caller_of(request), data)


@put("/members/{user_id:str}", guards=[super_admins])
async def update_user(
    request: HttpRequest, people: People, user_id: PathId, data: JSONBody[EditUser]
) -> None:
    """Set a user's e-mail address and nickname."""
    await people.update(caller_of(request), user_id, data)


@put("/members/{user_id:str}/change-password", guards=[super_admins], waits=True)
async def set_user_password(
    request: HttpRequest, people: People, user_id: PathId, data: JSONBody[ChangePassword]
) -> None:
    """Give a user another password; its tokens end at once."""
    await people.set_password(caller_of(request), user_id, data.password)


@put("/members/{user_id:str}/status", guards=[super_admins])
async def set_user_status(
    request: HttpRequest, people: People, user_id: PathId, data: JSONBody[SetStatus]
) -> None:
    """Disable a user, whose tokens end at once, or enable it again."""
    await people.set_enabled(caller_of(request), user_id, enabled=data.enabled)


@delete("/members/{user_id:str}", guards=[super_admins])
async def delete_user(request: HttpRequest, people: People, user_id: PathId) -> dict[str, str]:
    """Delete a user, whose tokens end at once."""
    await people.delete_one(caller_of(request), user_id)
    return {}


@post("/batch-delete", guards=[super_admins])
async def delete_users(
    request: HttpRequest, people: People, data: JSONBody[DeleteUsers]
) -> dict[str, str]:
    """Delete users, whose tokens end at once; unknown ids are passed over."""
    await people.delete(caller_of(request), ids_of(data.user_id_list))
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


ROUTER = Router("/user", guards=[users], route_handlers=operations_of(globals()), tags=["Users"])
