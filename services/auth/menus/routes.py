"""`/user/menus`: the tree of pages and functions, for super-admins."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import HttpRequest
from libs.common.http.console import delete, get, post, put
from libs.common.http.guards import super_admins
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.http.request import caller_of
from services.auth.menus.service import (
    MenuMade,
    MenuNode,
    MenuService,
    MenuUpdate,
    NewMenu,
    tree,
    visible_to,
)

Menus = NamedDependency[MenuService]


@get()
async def list_menus(request: HttpRequest, menus: Menus) -> list[MenuNode]:
    """The whole tree, as far as the console that asks knows it."""
    caller = caller_of(request)
    return tree(visible_to(caller.principal, await menus.all(caller)))


@post()
async def create_menu(request: HttpRequest, menus: Menus, data: JSONBody[NewMenu]) -> MenuMade:
    """Add a page, or a function below one."""
    return MenuMade(str(await menus.create(caller_of(request), data)))


@put("/{menu_id:str}")
async def update_menu(
    request: HttpRequest, menus: Menus, menu_id: PathId, data: JSONBody[MenuUpdate]
) -> dict[str, str]:
    """Change the name and type of an entry."""
    await menus.update(caller_of(request), menu_id, data)
    return {}


@delete("/{menu_id:str}")
async def delete_menu(request: HttpRequest, menus: Menus, menu_id: PathId) -> dict[str, str]:
    """Remove an entry without children, from roles too."""
    await menus.delete(caller_of(request), menu_id)
    return {}


ROUTER = Router(
    "/user/menus", guards=[super_admins], route_handlers=operations_of(globals()), tags=["Menus"]
)
