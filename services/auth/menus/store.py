"""Menus in MongoDB: `menus`: `{_id, tenant, code, name, type, parentId | null}`."""

from collections.abc import Sequence
from typing import Any

from libs.common.errors import Conflict
from libs.common.store.mongo import Database, DuplicateKey
from services.auth.changes import Change
from services.auth.menus.schemas import Menu, MenuType


class MenuStore:
    """The collection `menus`."""

    def __init__(self, database: Database) -> None:
        self._menus = database["menus"]
        self._roles = database["roles"]

    async def all(self, tenant: str) -> list[Menu]:
        """Every entry of a tenant by rising id."""
        return await self._find({"tenant": tenant})

    async def of_ids(
        self, tenant: str, ids: Sequence[int], change: Change | None = None
    ) -> list[Menu]:
        """The entries of a tenant that have one of `ids`, by rising id."""
        return await self._find({"_id": {"$in": list(ids)}, "tenant": tenant}, change)

    async def get(self, tenant: str, menu_id: int, change: Change) -> Menu | None:
        """One entry of a tenant."""
        found = await self.of_ids(tenant, [menu_id], change)
        return found[0] if found else None

    async def has_children(self, tenant: str, menu_id: int, change: Change) -> bool:
        """Tell whether any entry has this one for its parent."""
        query = {"tenant": tenant, "parentId": menu_id}
        return await self._menus.find_one(query, {"_id": 1}, session=change.session) is not None

    async def insert(self, tenant: str, menu: Menu, change: Change) -> None:
        """Add an entry; raise `Conflict` when the tenant has one of that code."""
        document = {
            "_id": menu.id,
            "tenant": tenant,
            "code": menu.code,
            "name": menu.name,
            "type": menu.type.value,
            "parentId": menu.parent_id,
        }
        try:
            await self._menus.insert_one(document, session=change.session)
        except DuplicateKey as error:
            raise Conflict(
                "code already exist", field="code", code="parameter_syntax_error"
            ) from error

    async def update(self, tenant: str, menu: Menu, change: Change) -> None:
        """Set name and type."""
        await self._menus.update_one(
            {"_id": menu.id, "tenant": tenant},
            {"$set": {"name": menu.name, "type": menu.type.value}},
            session=change.session,
        )

    async def delete(self, tenant: str, menu_id: int, change: Change) -> None:
        """Remove an entry, from roles too."""
        await self._menus.delete_one({"_id": menu_id, "tenant": tenant}, session=change.session)
        await self._roles.update_many(
            {"tenant": tenant, "menus": menu_id},
            {"$pull": {"menus": menu_id}},
            session=change.session,
        )

    async def _find(self, query: dict[str, Any], change: Change | None = None) -> list[Menu]:
        session = None if change is None else change.session
        documents = self._menus.find(query, session=session).sort("_id", 1)
        return [_menu(document) async for document in documents]


def _menu(document: dict[str, Any]) -> Menu:
    parent = document["parentId"]
    return Menu(
        id=int(document["_id"]),
        code=document["code"],
        name=document["name"],
        type=MenuType(document["type"]),
        parent_id=None if parent is None else int(parent),
    )
