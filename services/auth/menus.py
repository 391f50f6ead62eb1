"""Menus: the tree of pages and functions that roles are given.

No entry ever changes its parent, and none that has children is deleted: the tree stays one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.errors import Conflict, MalformedRequest, NotFound
from libs.common.http import RequestCaller
from libs.common.http.console import Shown, delete, get, name_of, post, put
from libs.common.http.guards import super_admins
from libs.common.http.ids import Id, PathId
from libs.common.http.operations import operations_of
from libs.common.identity import Caller, Principal
from libs.common.store.mongo import Session
from services.auth.accounts.roles import Menu, MenuStore, MenuType, RoleStore
from services.auth.changes import Change, Changes


class NewMenu(msgspec.Struct, kw_only=True):
    """Body of `POST /user/menus`."""

    code: str
    name: str
    type: MenuType
    parent_id: Id | None = None


class MenuUpdate(msgspec.Struct, kw_only=True):
    """Body of `PUT /user/menus/{menu_id}`; code and parent stay."""

    name: str
    type: MenuType


class MenuMade(msgspec.Struct):
    """Answer of `POST /user/menus`."""

    menu_id: str


class ShownMenu(Shown):
    """An entry of a flat list; a root has no `parent_id`."""

    menu_id: str
    code: str
    name: str
    type: MenuType
    parent_id: str | None = None


class MenuNode(ShownMenu, kw_only=True):
    """An entry of the tree; consoles need `children` on leaves as well."""

    children: list["MenuNode"]


OWN_PAGES = frozenset({"product"})
"""Codes of pages that the own console has and others do not: those show a raw key for them."""


def flat(menus: Iterable[Menu]) -> list[ShownMenu]:
    """Entries one by one."""
    return [ShownMenu.from_fields(menu, menu_id=str(menu.id)) for menu in menus]


def tree(menus: Sequence[Menu]) -> list[MenuNode]:
    """The roots with their children; an entry whose parent is not among `menus` is a root."""
    nodes = {
        menu.id: MenuNode.from_fields(menu, menu_id=str(menu.id), children=[]) for menu in menus
    }
    roots: list[MenuNode] = []
    for menu in menus:
        parent = None if menu.parent_id is None else nodes.get(menu.parent_id)
        siblings = roots if parent is None else parent.children
        siblings.append(nodes[menu.id])
    return roots


def visible_to(user: Principal, menus: Sequence[Menu]) -> list[Menu]:
    """Return the menus that the user's console knows.

    `menus` are all menus of the tenant. For a console other than our own, `OWN_PAGES` and the
    entries below them are left out.
    """
    if user.uses_own_console:
        return list(menus)
    known = {menu.id: menu for menu in menus}

    def is_own(menu: Menu | None) -> bool:
        while menu is not None and menu.code not in OWN_PAGES:
            menu = None if menu.parent_id is None else known.get(menu.parent_id)
        return menu is not None

    return [menu for menu in menus if not is_own(menu)]


def with_ancestors(menus: Sequence[Menu], ids: Iterable[int]) -> list[Menu]:
    """Those of `menus` that have one of `ids`, and the pages that lead to them.

    Consoles show a function only below its pages.
    """
    known = {menu.id: menu for menu in menus}
    wanted: set[int] = set()
    for menu_id in ids:
        at: int | None = menu_id
        while at is not None and at in known and at not in wanted:
            wanted.add(at)
            at = known[at].parent_id
    return [menu for menu in menus if menu.id in wanted]


MAX_CODE = 127
"""Most characters of a code or name."""
DEEPEST = 16
"""Most entries one below the other. Consoles show three; answers nest as deep as the tree."""


@dataclass(frozen=True)
class MenuService:
    """The menus of the caller's tenant."""

    changes: Changes
    store: MenuStore
    roles: RoleStore

    async def all(self, caller: Caller) -> list[Menu]:
        """Every entry by rising id."""
        return await self.store.all(caller.tenant)

    async def create(self, caller: Caller, wanted: NewMenu) -> int:
        """Add an entry; raise `InvalidInput`, `NotFound` (the parent) or `Conflict` (the code)."""
        menu = Menu(
            id=await self.store.next_id(),
            code=name_of(wanted.code, "code", MAX_CODE),
            name=name_of(wanted.name, most=MAX_CODE),
            type=wanted.type,
            parent_id=wanted.parent_id,
        )
        _check_root(menu)

        async def insert_menu(change: Change) -> None:
            if menu.parent_id is not None:
                await self._check_parent(caller.tenant, menu.parent_id, change.session)
            await change.reserve("records")
            await self.store.insert(caller.tenant, menu, change.session)
            change.record_access("created", menu.subject, after=_audit_fields(menu))

        await self.changes.run(caller, insert_menu)
        return menu.id

    async def update(self, caller: Caller, menu_id: int, wanted: MenuUpdate) -> None:
        """Change name and type; raise `InvalidInput` or `NotFound`."""
        name = name_of(wanted.name, most=MAX_CODE)

        async def update_menu(change: Change) -> None:
            before = await self._found(caller.tenant, menu_id, change.session)
            after = msgspec.structs.replace(before, name=name, type=wanted.type)
            _check_root(after)
            if after.type is MenuType.FUNCTION and before.type is MenuType.MENU:
                await self._check_leaf(caller.tenant, menu_id, "type", change.session)
            await self.store.update(caller.tenant, after, change.session)
            change.record_access(
                "updated", after.subject, _audit_fields(before), _audit_fields(after)
            )

        await self.changes.run(caller, update_menu)

    async def delete(self, caller: Caller, menu_id: int) -> None:
        """Remove an entry, from roles too; raise `NotFound`, `Conflict` while it has children."""

        async def delete_menu(change: Change) -> None:
            menu = await self._found(caller.tenant, menu_id, change.session)
            await self._check_leaf(caller.tenant, menu_id, "menu_id", change.session)
            await self.store.delete(caller.tenant, menu_id, change.session)
            await self.roles.drop_menu(caller.tenant, menu_id, change.session)
            change.record_access("deleted", menu.subject, before=_audit_fields(menu))

        await self.changes.run(caller, delete_menu)

    async def _found(self, tenant: str, menu_id: int, session: Session) -> Menu:
        menu = await self.store.get(tenant, menu_id, session)
        if menu is None:
            raise NotFound(f"there is no menu {menu_id}", field="menu_id")
        return menu

    async def _check_parent(self, tenant: str, parent_id: int, session: Session) -> None:
        parent = await self.store.get(tenant, parent_id, session)
        if parent is None:
            raise NotFound(f"there is no menu {parent_id}", field="parent_id")
        if parent.type is not MenuType.MENU:
            raise MalformedRequest("a function has no children", field="parent_id")
        depth = 1
        while parent is not None and parent.parent_id is not None:
            parent, depth = await self.store.get(tenant, parent.parent_id, session), depth + 1
        if depth >= DEEPEST:
            raise MalformedRequest(f"the tree is at most {DEEPEST} entries deep", field="parent_id")

    async def _check_leaf(self, tenant: str, menu_id: int, field: str, session: Session) -> None:
        if await self.store.has_children(tenant, menu_id, session):
            raise Conflict("the menu has children", field=field, code="parameter_syntax_error")


def _check_root(menu: Menu) -> None:
    if menu.type is MenuType.FUNCTION and menu.parent_id is None:
        raise MalformedRequest("function can not be root", field="parent_id")


def _audit_fields(menu: Menu) -> dict[str, Any]:
    """The entry as the audit log has it."""
    return msgspec.structs.asdict(menu)


Menus = NamedDependency[MenuService]


@dataclass(frozen=True)
class MenuHandlers:
    """What the operations on menus need."""

    menus: MenuService


@get()
async def list_menus(caller: RequestCaller, menus: Menus) -> list[MenuNode]:
    """The whole tree, as far as the console that asks knows it."""
    return tree(visible_to(caller.principal, await menus.all(caller)))


@post()
async def create_menu(caller: RequestCaller, menus: Menus, data: JSONBody[NewMenu]) -> MenuMade:
    """Add a page, or a function below one."""
    return MenuMade(str(await menus.create(caller, data)))


@put("/{menu_id:str}")
async def update_menu(
    caller: RequestCaller, menus: Menus, menu_id: PathId, data: JSONBody[MenuUpdate]
) -> dict[str, str]:
    """Change the name and type of an entry."""
    await menus.update(caller, menu_id, data)
    return {}


@delete("/{menu_id:str}")
async def delete_menu(caller: RequestCaller, menus: Menus, menu_id: PathId) -> dict[str, str]:
    """Remove an entry without children, from roles too."""
    await menus.delete(caller, menu_id)
    return {}


ROUTER = Router(
    "/user/menus", guards=[super_admins], route_handlers=operations_of(globals()), tags=["Menus"]
)
