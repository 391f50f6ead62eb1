"""`/user/members`: the users of the caller's tenant."""

from typing import Any

from litestar import Request, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http.console import CONSOLE_REFUSALS, Answer, Page, PathId, answer, ids_of
from libs.common.http.guards import super_admins, users
from libs.common.http.request import caller_of, principal_of, request_id_of
from services.auth.menus.schemas import ShownMenu
from services.auth.menus.tree import flat
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

HttpRequest = Request[Any, Any, Any]
Directory = NamedDependency[UserDirectory]
People = NamedDependency[UserService]

_SHARED: dict[str, Any] = {"responses": CONSOLE_REFUSALS, "status_code": 200, "tags": ["Users"]}
_ADMIN: dict[str, Any] = {**_SHARED, "guards": [super_admins]}
_USER: dict[str, Any] = {**_SHARED, "guards": [users]}


@post("/user/members/search", **_USER)
async def search_users(
    request: HttpRequest, directory: Directory, data: JSONBody[UserSearch]
) -> Answer[list[ShownUser] | Page[ShownUser]]:
    """Search users by part of their nickname or e-mail address."""
    found, total = await directory.search(principal_of(request).tenant, data)
    return answer(request, data.listed(found, total))


@post("/user/members", **_ADMIN)
async def create_user(
    request: HttpRequest, people: People, data: JSONBody[RegisterUser]
) -> Answer[None]:
    """Add a user without roles."""
    await people.create(caller_of(request), data)
    return answer(request)


@put("/user/members/{user_id:str}", **_ADMIN)
async def update_user(
    request: HttpRequest, people: People, user_id: PathId, data: JSONBody[EditUser]
) -> Answer[None]:
    """Set a user's e-mail address and nickname."""
    await people.update(caller_of(request), user_id, data)
    return answer(request)


@put("/user/members/{user_id:str}/change-password", **_ADMIN)
async def change_password(
    request: HttpRequest, people: People, user_id: PathId, data: JSONBody[ChangePassword]
) -> Answer[None]:
    """Give a user another password; its tokens end at once."""
    await people.set_password(caller_of(request), user_id, data.password)
    return answer(request)


@put("/user/members/{user_id:str}/status", **_ADMIN)
async def set_status(
    request: HttpRequest, people: People, user_id: PathId, data: JSONBody[SetStatus]
) -> Answer[None]:
    """Disable a user, whose tokens end at once, or enable it again."""
    await people.set_enabled(caller_of(request), user_id, enabled=data.enabled)
    return answer(request)


@delete("/user/members/{user_id:str}", **_ADMIN)
async def delete_user(
    request: HttpRequest, people: People, user_id: PathId
) -> Answer[dict[str, str]]:
    """Delete a user, whose tokens end at once."""
    await people.delete_one(caller_of(request), user_id)
    return answer(request, {})


@post("/user/batch-delete", **_ADMIN)
async def delete_users(
    request: HttpRequest, people: People, data: JSONBody[DeleteUsers]
) -> Answer[dict[str, str]]:
    """Delete users, whose tokens end at once; unknown ids are passed over."""
    await people.delete(caller_of(request), ids_of(data.user_id_list))
    return answer(request, {})


@get("/user/members/{user_id:str}/menus", **_USER)
async def list_user_menus(
    request: HttpRequest, directory: Directory, user_id: PathId
) -> Answer[list[ShownMenu]]:
    """The pages and functions that are open to a user, one by one."""
    return answer(request, flat(await directory.menus(principal_of(request).tenant, user_id)))


@post("/user/members/{user_id:str}/permission", **_USER)
async def ask_permission(
    request: HttpRequest, directory: Directory, user_id: PathId, data: JSONBody[AskPermission]
) -> PermissionAnswer:
    """Tell whether a user has a resource, by itself or by its integration."""
    held = await directory.has_permission(principal_of(request).tenant, user_id, data)
    return PermissionAnswer(
        data=Permission(held), request_id=request_id_of(request), has_permission=held
    )


ROUTES = (
    search_users,
    create_user,
    update_user,
    change_password,
    set_status,
    delete_user,
    delete_users,
    list_user_menus,
    ask_permission,
)
