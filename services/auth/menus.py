"""Menus: the tree of pages and functions that roles may use.

An entry never changes its parent, and an entry with children cannot be deleted. So the entries
always form a tree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec.structs import asdict, replace

from libs.common.errors import Conflict, MalformedRequest, NotFound
from libs.common.http import RequestCaller
from libs.common.http.console import ResponseModel, delete, get, parse_name, post, put
from libs.common.http.guards import super_admins
from libs.common.http.ids import Id, PathId
from libs.common.http.operations import route_operations
from libs.common.identity import Caller, Principal
from libs.common.store.mongo import Session
from services.auth.accounts.roles import Menu, MenuStore, MenuType, RoleStore
from services.auth.changes import ChangeRunner, ChangeTransaction


class NewMenu(msgspec.Struct, kw_only=True):
    """Body of `POST /user/menus`."""

    code: str
    """Code that the console uses, for example `device.view`."""
    name: str
    type: MenuType
    """`MENU` for a page, `FUNCTION` for a permission on a page."""
    parent_id: Id | None = None
    """Id of the menu above. Absent for a root."""


class MenuUpdate(msgspec.Struct, kw_only=True):
    """Body of `PUT /user/menus/{menu_id}`. Code and parent do not change."""

    name: str
    type: MenuType
    """`MENU` for a page, `FUNCTION` for a permission on a page."""


class CreatedMenu(msgspec.Struct):
    """Response of `POST /user/menus`."""

    menu_id: str


class MenuResponse(ResponseModel):
    """An entry of a flat list. A root has no `parent_id`."""

    menu_id: str
    code: str
    """Code that the console uses, for example `device.view`."""
    name: str
    type: MenuType
    """`MENU` for a page, `FUNCTION` for a permission on a page."""
    parent_id: str | None = None
    """Id of the menu above. Absent for a root."""


class MenuNode(MenuResponse, kw_only=True):
    """An entry of the tree. Consoles require `children` on leaves too."""

    children: list["MenuNode"]
    """Menus below this one."""


BUILT_IN_ONLY_PAGE_CODES = frozenset({"product"})
"""Codes of pages that only the built-in console has; other consoles would show the code."""


def flatten_menus(menus: Iterable[Menu]) -> list[MenuResponse]:
    """Return entries as a flat list."""
    return [MenuResponse.from_fields(menu, menu_id=str(menu.id)) for menu in menus]


def build_menu_tree(menus: Sequence[Menu]) -> list[MenuNode]:
    """Return the roots with their children.

    An entry whose parent is not among `menus` is a root.
    """
    nodes = {
        menu.id: MenuNode.from_fields(menu, menu_id=str(menu.id), children=[]) for menu in menus
    }
    roots: list[MenuNode] = []
    for menu in menus:
        parent = None if menu.parent_id is None else nodes.get(menu.parent_id)
        siblings = roots if parent is None else parent.children
        siblings.append(nodes[menu.id])
    return roots


def filter_supported_menus(user: Principal, menus: Sequence[Menu]) -> list[Menu]:
    """Return the menus that the user's console supports.

    `menus` are all menus of the tenant. For a console other than the built-in one,
    `BUILT_IN_ONLY_PAGE_CODES` and the entries below them are left out.
    """
    if user.uses_own_console:
        return list(menus)
    menus_by_id = {menu.id: menu for menu in menus}

    def is_built_in_only(menu: Menu | None) -> bool:
        while menu is not None and menu.code not in BUILT_IN_ONLY_PAGE_CODES:
            menu = None if menu.parent_id is None else menus_by_id.get(menu.parent_id)
        return menu is not None

    return [menu for menu in menus if not is_built_in_only(menu)]


def select_with_ancestors(menus: Sequence[Menu], ids: Iterable[int]) -> list[Menu]:
    """Return the `menus` with one of `ids` and their ancestors.

    Consoles show a function only below its pages.
    """
    menus_by_id = {menu.id: menu for menu in menus}
    selected_ids: set[int] = set()
    for menu_id in ids:
        at: int | None = menu_id
        while at is not None and at in menus_by_id and at not in selected_ids:
            selected_ids.add(at)
            at = menus_by_id[at].parent_id
    return [menu for menu in menus if menu.id in selected_ids]


MAX_CODE_CHARACTERS = 127
"""Maximum characters of a code or name."""
MAX_DEPTH = 16
"""Maximum levels of the tree. Consoles show three, and responses nest as deep as the tree."""


@dataclass(frozen=True)
class MenuService:
    """The menus of the caller's tenant."""

    changes: ChangeRunner
    store: MenuStore
    roles: RoleStore

    async def list_all(self, caller: Caller) -> list[Menu]:
        """Return all entries, sorted by id."""
        return await self.store.list_all(caller.tenant)

    async def create(self, caller: Caller, request: NewMenu) -> int:
        """Add an entry and return its id.

        Raises `InvalidInput`, `NotFound` (parent) and `Conflict` (code).
        """
        menu = Menu(
            id=await self.store.next_id(),
            code=parse_name(request.code, "code", MAX_CODE_CHARACTERS),
            name=parse_name(request.name, maximum=MAX_CODE_CHARACTERS),
            type=request.type,
            parent_id=request.parent_id,
        )
        _require_parent_of_function(menu)

        async def insert_menu(change: ChangeTransaction) -> None:
            if menu.parent_id is not None:
                await self._require_valid_parent(caller.tenant, menu.parent_id, change.session)
            await change.reserve("records")
            await self.store.insert(caller.tenant, menu, change.session)
            change.record_access_change("created", menu.audit_target, after=asdict(menu))

        await self.changes.run(caller, insert_menu)
        return menu.id

    async def update(self, caller: Caller, menu_id: int, request: MenuUpdate) -> None:
        """Store name and type of an entry; raise `InvalidInput` or `NotFound`.

        Raises `Conflict` if an entry with children is to become a function.
        """
        name = parse_name(request.name, maximum=MAX_CODE_CHARACTERS)

        async def update_menu(change: ChangeTransaction) -> None:
            before = await self._get_menu(caller.tenant, menu_id, change.session)
            after = replace(before, name=name, type=request.type)
            _require_parent_of_function(after)
            if after.type is MenuType.FUNCTION and before.type is MenuType.MENU:
                await self._require_no_children(caller.tenant, menu_id, "type", change.session)
            await self.store.update(caller.tenant, after, change.session)
            change.record_access_change(
                "updated", after.audit_target, asdict(before), asdict(after)
            )

        await self.changes.run(caller, update_menu)

    async def delete(self, caller: Caller, menu_id: int) -> None:
        """Delete an entry and remove it from roles.

        Raises `NotFound`, and `Conflict` if it has children.
        """

        async def delete_menu(change: ChangeTransaction) -> None:
            menu = await self._get_menu(caller.tenant, menu_id, change.session)
            await self._require_no_children(caller.tenant, menu_id, "menu_id", change.session)
            await self.store.delete(caller.tenant, menu_id, change.session)
            await self.roles.remove_menu_from_roles(caller.tenant, menu_id, change.session)
            change.record_access_change("deleted", menu.audit_target, before=asdict(menu))

        await self.changes.run(caller, delete_menu)

    async def _get_menu(self, tenant: str, menu_id: int, session: Session) -> Menu:
        menu = await self.store.get(tenant, menu_id, session)
        if menu is None:
            raise NotFound(f"menu {menu_id} does not exist", field="menu_id")
        return menu

    async def _require_valid_parent(self, tenant: str, parent_id: int, session: Session) -> None:
        parent = await self.store.get(tenant, parent_id, session)
        if parent is None:
            raise NotFound(f"menu {parent_id} does not exist", field="parent_id")
        if parent.type is not MenuType.MENU:
            raise MalformedRequest("a function cannot have children", field="parent_id")
        depth = 1
        while parent is not None and parent.parent_id is not None:
            parent, depth = await self.store.get(tenant, parent.parent_id, session), depth + 1
        if depth >= MAX_DEPTH:
            raise MalformedRequest(
                f"the tree can have at most {MAX_DEPTH} levels", field="parent_id"
            )

    async def _require_no_children(
        self, tenant: str, menu_id: int, field: str, session: Session
    ) -> None:
        if await self.store.has_children(tenant, menu_id, session):
            raise Conflict("the menu has children", field=field, code="parameter_syntax_error")


def _require_parent_of_function(menu: Menu) -> None:
    if menu.type is MenuType.FUNCTION and menu.parent_id is None:
        raise MalformedRequest("a function must have a parent", field="parent_id")


MenuServiceDependency = NamedDependency[MenuService]


@dataclass(frozen=True)
class MenuHandlerDependencies:
    """Dependencies of the operations on menus."""

    menus: MenuService


@get()
async def list_menus(caller: RequestCaller, menus: MenuServiceDependency) -> list[MenuNode]:
    """List the menu tree, without pages that the caller's console does not support."""
    return build_menu_tree(filter_supported_menus(caller.principal, await menus.list_all(caller)))


@post()
async def create_menu(
    caller: RequestCaller, menus: MenuServiceDependency, data: JSONBody[NewMenu]
) -> CreatedMenu:
    """Add a page, or a function of a page."""
    return CreatedMenu(str(await menus.create(caller, data)))


@put("/{menu_id:str}")
async def update_menu(
    caller: RequestCaller, menus: MenuServiceDependency, menu_id: PathId, data: JSONBody[MenuUpdate]
) -> dict[str, str]:
    """Change the name and type of an entry."""
    await menus.update(caller, menu_id, data)
    return {}


@delete("/{menu_id:str}")
async def delete_menu(
    caller: RequestCaller, menus: MenuServiceDependency, menu_id: PathId
) -> dict[str, str]:
    """Delete an entry without children, and remove it from roles."""
    await menus.delete(caller, menu_id)
    return {}


ROUTER = route_operations(globals(), "/user/menus", guards=[super_admins], tags=["Menus"])
