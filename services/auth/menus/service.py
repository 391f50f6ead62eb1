"""Creates, changes and deletes menu entries.

No entry ever changes its parent, and none that has children goes: the tree stays one.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.errors import Conflict, MalformedRequest, NotFound
from libs.common.http.console import name_of
from libs.common.identity import Caller
from libs.common.store.mongo import Session
from services.auth.accounts.menus import Menu, MenuStore, MenuType
from services.auth.accounts.roles import RoleStore
from services.auth.changes import Change, Changes
from services.auth.menus.schemas import MenuUpdate, NewMenu

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
    next_id: Callable[[], Awaitable[int]]

    async def all(self, caller: Caller) -> list[Menu]:
        """Every entry by rising id."""
        return await self.store.all(caller.principal.tenant)

    async def create(self, caller: Caller, wanted: NewMenu) -> int:
        """Add an entry; raise `InvalidInput`, `NotFound` (the parent) or `Conflict` (the code)."""
        menu = Menu(
            id=await self.next_id(),
            code=name_of(wanted.code, "code", MAX_CODE),
            name=name_of(wanted.name, most=MAX_CODE),
            type=wanted.type,
            parent_id=wanted.parent_id,
        )
        _check_root(menu)
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            if menu.parent_id is not None:
                await self._check_parent(tenant, menu.parent_id, change.session)
            await change.reserve("records")
            await self.store.insert(tenant, menu, change.session)
            change.record_access("created", menu.subject, after=_told(menu))

        await self.changes.run(caller, work)
        return menu.id

    async def update(self, caller: Caller, menu_id: int, wanted: MenuUpdate) -> None:
        """Change name and type; raise `InvalidInput` or `NotFound`."""
        name = name_of(wanted.name, most=MAX_CODE)
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            before = await self._found(tenant, menu_id, change.session)
            after = msgspec.structs.replace(before, name=name, type=wanted.type)
            _check_root(after)
            if after.type is MenuType.FUNCTION and before.type is MenuType.MENU:
                await self._check_leaf(tenant, menu_id, "type", change.session)
            await self.store.update(tenant, after, change.session)
            change.record_access("updated", after.subject, _told(before), _told(after))

        await self.changes.run(caller, work)

    async def delete(self, caller: Caller, menu_id: int) -> None:
        """Remove an entry, from roles too; raise `NotFound`, `Conflict` while it has children."""
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            menu = await self._found(tenant, menu_id, change.session)
            await self._check_leaf(tenant, menu_id, "menu_id", change.session)
            await self.store.delete(tenant, menu_id, change.session)
            await self.roles.drop_menu(tenant, menu_id, change.session)
            change.record_access("deleted", menu.subject, before=_told(menu))

        await self.changes.run(caller, work)

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


def _told(menu: Menu) -> dict[str, Any]:
    """The entry as the audit log has it."""
    told: dict[str, Any] = msgspec.to_builtins(menu)
    return told
