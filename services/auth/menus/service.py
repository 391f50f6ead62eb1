"""Creates, changes and deletes menu entries.

No entry ever changes its parent, and none that has children goes: the tree stays one.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from libs.common.errors import Conflict, MalformedRequest, NotFound
from libs.common.identity import Caller
from services.auth.changes import Change, Changes
from services.auth.menus.schemas import Menu, MenuType, MenuUpdate, NewMenu
from services.auth.names import checked_name

MAX_CODE = 127
"""Most characters of a code or name."""
DEEPEST = 16
"""Most entries one below the other. Consoles show three; answers nest as deep as the tree."""


class Store(Protocol):
    """Where menus are kept."""

    async def all(self, tenant: str) -> list[Menu]:
        """Every entry of a tenant by rising id."""

    async def get(self, tenant: str, menu_id: int, change: Change) -> Menu | None:
        """One entry of a tenant."""

    async def has_children(self, tenant: str, menu_id: int, change: Change) -> bool:
        """Tell whether any entry has this one for its parent."""

    async def insert(self, tenant: str, menu: Menu, change: Change) -> None:
        """Add an entry; raise `Conflict` when the tenant has one of that code."""

    async def update(self, tenant: str, menu: Menu, change: Change) -> None:
        """Set name and type."""

    async def delete(self, tenant: str, menu_id: int, change: Change) -> None:
        """Remove an entry, from roles too."""


class MenuService:
    """The menus of the caller's tenant."""

    def __init__(
        self, changes: Changes, store: Store, next_id: Callable[[], Awaitable[int]]
    ) -> None:
        self._changes = changes
        self._store = store
        self._next_id = next_id

    async def all(self, caller: Caller) -> list[Menu]:
        """Every entry by rising id."""
        return await self._store.all(caller.principal.tenant)

    async def create(self, caller: Caller, wanted: NewMenu) -> int:
        """Add an entry; raise `InvalidInput`, `NotFound` (the parent) or `Conflict` (the code)."""
        menu = Menu(
            id=await self._next_id(),
            code=checked_name(wanted.code, "code", MAX_CODE),
            name=checked_name(wanted.name, "name", MAX_CODE),
            type=wanted.type,
            parent_id=None if wanted.parent_id is None else int(wanted.parent_id),
        )
        _check_root(menu)
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            if menu.parent_id is not None:
                await self._check_parent(tenant, menu.parent_id, change)
            await self._store.insert(tenant, menu, change)
            change.record_access("created", menu.subject, after=_told(menu))

        await self._changes.run(caller, work)
        return menu.id

    async def update(self, caller: Caller, menu_id: int, wanted: MenuUpdate) -> None:
        """Change name and type; raise `InvalidInput` or `NotFound`."""
        name = checked_name(wanted.name, "name", MAX_CODE)
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            before = await self._found(tenant, menu_id, change)
            after = msgspec.structs.replace(before, name=name, type=wanted.type)
            _check_root(after)
            if after.type is MenuType.FUNCTION and before.type is MenuType.MENU:
                await self._check_leaf(tenant, menu_id, "type", change)
            await self._store.update(tenant, after, change)
            change.record_access("updated", after.subject, _told(before), _told(after))

        await self._changes.run(caller, work)

    async def delete(self, caller: Caller, menu_id: int) -> None:
        """Remove an entry, from roles too; raise `NotFound`, `Conflict` while it has children."""
        tenant = caller.principal.tenant

        async def work(change: Change) -> None:
            menu = await self._found(tenant, menu_id, change)
            await self._check_leaf(tenant, menu_id, "menu_id", change)
            await self._store.delete(tenant, menu_id, change)
            change.record_access("deleted", menu.subject, before=_told(menu))

        await self._changes.run(caller, work)

    async def _found(self, tenant: str, menu_id: int, change: Change) -> Menu:
        menu = await self._store.get(tenant, menu_id, change)
        if menu is None:
            raise NotFound(f"there is no menu {menu_id}", field="menu_id")
        return menu

    async def _check_parent(self, tenant: str, parent_id: int, change: Change) -> None:
        parent = await self._store.get(tenant, parent_id, change)
        if parent is None:
            raise NotFound(f"there is no menu {parent_id}", field="parent_id")
        if parent.type is not MenuType.MENU:
            raise MalformedRequest("a function has no children", field="parent_id")
        depth = 1
        while parent is not None and parent.parent_id is not None:
            parent, depth = await self._store.get(tenant, parent.parent_id, change), depth + 1
        if depth >= DEEPEST:
            raise MalformedRequest(f"the tree is at most {DEEPEST} entries deep", field="parent_id")

    async def _check_leaf(self, tenant: str, menu_id: int, field: str, change: Change) -> None:
        if await self._store.has_children(tenant, menu_id, change):
            raise Conflict("the menu has children", field=field, code="parameter_syntax_error")


def _check_root(menu: Menu) -> None:
    if menu.type is MenuType.FUNCTION and menu.parent_id is None:
        raise MalformedRequest("function can not be root", field="parent_id")


def _told(menu: Menu) -> dict[str, Any]:
    """The entry as the audit log has it."""
    told: dict[str, Any] = msgspec.to_builtins(menu)
    return told
