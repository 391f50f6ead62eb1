"""Menus in MongoDB, and the menu tree that every tenant begins with.

`menus`: `{_id, tenant, code, name, type, parentId | null}`. The menus of the default tenant have
the ids of `INITIAL_MENUS`; those of other tenants get ids of their own.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from libs.common.errors import Conflict
from libs.common.identity.functions import Function
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import BulkFailed, Database, Document, Session
from services.auth.audit import Subject


class MenuType(StrEnum):
    """A page, or what may be done on one."""

    MENU = "MENU"
    FUNCTION = "FUNCTION"


class Menu(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An entry of the tree of a console."""

    id: int = msgspec.field(name="_id")
    code: str
    name: str
    type: MenuType
    parent_id: int | None = None

    @property
    def subject(self) -> Subject:
        """The entry in the audit log."""
        return Subject("menu", str(self.id), self.name)


class MenuStore:
    """The collection `menus`."""

    def __init__(self, database: Database) -> None:
        self._menus = database["menus"]
        self.next_id = IdAllocator(database, "menus", len(INITIAL_MENUS)).take

    async def all(self, tenant: str, session: Session | None = None) -> list[Menu]:
        """Every entry of a tenant by rising id."""
        return await self._find({"tenant": tenant}, session)

    async def find(
        self, tenant: str, ids: Iterable[int], session: Session | None = None
    ) -> list[Menu]:
        """The entries of a tenant that have one of `ids`, by rising id."""
        return await self._find({"_id": {"$in": list(ids)}, "tenant": tenant}, session)

    async def codes(self, tenant: str, ids: Iterable[int], session: Session) -> frozenset[str]:
        """The codes of those of `ids` that are FUNCTIONs."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant, "type": "FUNCTION"}
        found = self._menus.find(query, {"code": 1}, session=session)
        return frozenset([menu["code"] async for menu in found])

    async def get(self, tenant: str, menu_id: int, session: Session) -> Menu | None:
        """One entry of a tenant."""
        found = await self.find(tenant, [menu_id], session)
        return found[0] if found else None

    async def has_children(self, tenant: str, menu_id: int, session: Session) -> bool:
        """Tell whether any entry has this one for its parent."""
        query = {"tenant": tenant, "parentId": menu_id}
        return await self._menus.find_one(query, {"_id": 1}, session=session) is not None

    async def insert(self, tenant: str, menu: Menu, session: Session) -> None:
        """Add an entry; raise `Conflict` when the tenant has one of that code."""
        try:
            await self.insert_all(tenant, [menu], session)
        except BulkFailed as error:
            raise Conflict(
                "code already exist", field="code", code="parameter_syntax_error"
            ) from error

    async def insert_all(self, tenant: str, menus: Iterable[Menu], session: Session) -> None:
        """Add the entries that a tenant begins with."""
        documents = [menu_document(tenant, menu) for menu in menus]
        await self._menus.insert_many(documents, session=session)

    async def update(self, tenant: str, menu: Menu, session: Session) -> None:
        """Set name and type."""
        await self._menus.update_one(
            {"_id": menu.id, "tenant": tenant},
            {"$set": {"name": menu.name, "type": menu.type.value}},
            session=session,
        )

    async def delete(self, tenant: str, menu_id: int, session: Session) -> None:
        """Remove an entry."""
        await self._menus.delete_one({"_id": menu_id, "tenant": tenant}, session=session)

    async def _find(self, query: Document, session: Session | None = None) -> list[Menu]:
        found = await self._menus.find(query, session=session).sort("_id", 1).to_list(None)
        return msgspec.convert(found, list[Menu])


def menu_document(tenant: str, menu: Menu) -> Document:
    """Return the entry as it is stored."""
    return {"tenant": tenant, **msgspec.to_builtins(menu)}


_FUNCTIONS = frozenset(Function)


def _initial_menu(identity: int, code: str, parent: int | None = None) -> Menu:
    """What is a `Function` is a FUNCTION, the pages are MENUs."""
    kind = MenuType.FUNCTION if code in _FUNCTIONS else MenuType.MENU
    return Menu(id=identity, code=code, name=code, type=kind, parent_id=parent)


INITIAL_MENUS = (
    _initial_menu(1000, "dashboard"),
    _initial_menu(1001, "dashboard.view", 1000),
    _initial_menu(1002, "dashboard.add", 1000),
    _initial_menu(1003, "dashboard.edit", 1000),
    _initial_menu(1004, "dashboard.delete", 1000),
    _initial_menu(2000, "device"),
    _initial_menu(2001, "device.view", 2000),
    _initial_menu(2002, "device.add", 2000),
    _initial_menu(2003, "device.edit", 2000),
    _initial_menu(2004, "device.delete", 2000),
    _initial_menu(2005, "device.group_manage", 2000),
    _initial_menu(2100, "product"),
    _initial_menu(2101, "product.view", 2100),
    _initial_menu(2102, "product.manage", 2100),
    _initial_menu(7000, "entity"),
    _initial_menu(3000, "entity_custom", 7000),
    _initial_menu(3001, "entity_custom.view", 3000),
    _initial_menu(3002, "entity_custom.add", 3000),
    _initial_menu(3003, "entity_custom.edit", 3000),
    _initial_menu(3004, "entity_custom.delete", 3000),
    _initial_menu(4000, "entity_data", 7000),
    _initial_menu(4001, "entity_data.view", 4000),
    _initial_menu(4002, "entity_data.edit", 4000),
    _initial_menu(4003, "entity_data.export", 4000),
    _initial_menu(5000, "workflow"),
    _initial_menu(5001, "workflow.view", 5000),
    _initial_menu(5002, "workflow.add", 5000),
    _initial_menu(5004, "workflow.edit", 5000),
    _initial_menu(5006, "workflow.delete", 5000),
    _initial_menu(6000, "integration"),
    _initial_menu(6001, "integration.view", 6000),
    _initial_menu(7900, "settings"),
    _initial_menu(8000, "credentials", 7900),
    _initial_menu(8001, "credentials.view", 8000),
    _initial_menu(8002, "credentials.edit", 8000),
    _initial_menu(9000, "tag"),
    _initial_menu(9001, "entity_tag.view", 9000),
    _initial_menu(9002, "entity_tag.manage", 9000),
)
"""Parents stand before their children."""
