"""Menus in MongoDB: `menus`: `{_id, tenant, code, name, type, parentId | null}`."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from libs.common.errors import Conflict
from libs.common.store.mongo import BulkFailed, Database, Document, Session
from services.auth.audit.schemas import Subject


class MenuType(StrEnum):
    """A page, or what may be done on one."""

    MENU = "MENU"
    FUNCTION = "FUNCTION"


class Menu(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the tree of a console."""

    id: int
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

    async def all(self, tenant: str, session: Session | None = None) -> list[Menu]:
        """Every entry of a tenant by rising id."""
        return await self._find({"tenant": tenant}, session)

    async def of_ids(
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
        found = await self.of_ids(tenant, [menu_id], session)
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
        documents = [
            {
                "_id": menu.id,
                "tenant": tenant,
                "code": menu.code,
                "name": menu.name,
                "type": menu.type.value,
                "parentId": menu.parent_id,
            }
            for menu in menus
        ]
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
        documents = self._menus.find(query, session=session).sort("_id", 1)
        return [_menu(document) async for document in documents]


def _menu(document: Document) -> Menu:
    return Menu(
        id=document["_id"],
        code=document["code"],
        name=document["name"],
        type=MenuType(document["type"]),
        parent_id=document["parentId"],
    )
