"""`/user/menus`: the tree of pages and functions, for super-admins."""

from typing import Any

from litestar import Request, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http.console import CONSOLE_REFUSALS, Answer, PathId, answer
from libs.common.http.guards import super_admins
from libs.common.http.request import caller_of
from services.auth.menus.schemas import MenuMade, MenuNode, MenuUpdate, NewMenu
from services.auth.menus.service import MenuService
from services.auth.menus.tree import tree

HttpRequest = Request[Any, Any, Any]
Menus = NamedDependency[MenuService]

_SHARED: dict[str, Any] = {
    "guards": [super_admins],
    "responses": CONSOLE_REFUSALS,
    "status_code": 200,
    "tags": ["Menus"],
}


@get("/user/menus", **_SHARED)
async def list_menus(request: HttpRequest, menus: Menus) -> Answer[list[MenuNode]]:
    """The whole tree."""
    return answer(request, tree(await menus.all(caller_of(request))))


@post("/user/menus", **_SHARED)
async def create_menu(
    request: HttpRequest, menus: Menus, data: JSONBody[NewMenu]
) -> Answer[MenuMade]:
    """Add a page, or a function below one."""
    return answer(request, MenuMade(str(await menus.create(caller_of(request), data))))


@put("/user/menus/{menu_id:str}", **_SHARED)
async def update_menu(
    request: HttpRequest, menus: Menus, menu_id: PathId, data: JSONBody[MenuUpdate]
) -> Answer[dict[str, str]]:
    """Change the name and type of an entry."""
    await menus.update(caller_of(request), menu_id, data)
    return answer(request, {})


@delete("/user/menus/{menu_id:str}", **_SHARED)
async def delete_menu(
    request: HttpRequest, menus: Menus, menu_id: PathId
) -> Answer[dict[str, str]]:
    """Remove an entry without children, from roles too."""
    await menus.delete(caller_of(request), menu_id)
    return answer(request, {})


ROUTES = (list_menus, create_menu, update_menu, delete_menu)
