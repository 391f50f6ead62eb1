"""Roles in MongoDB.

`roles`: `{_id, tenant, name, description, menus: [menuId], createdAt, updatedAt}`; which users
have a role stands in `users.roles`, what it shows them in `grants`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.common.errors import Conflict
from libs.common.http.console import PageRequest
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Database, Document, DuplicateKey, Session, containing, find_page
from services.auth.accounts.users import ID_BLOCK
from services.auth.audit import Subject

SUPER_ADMIN = "super_admin"
"""The role whose users may do everything; it is known by this name."""
SUPER_ADMIN_ID = 1
"""The id of the role `super_admin` in the default tenant."""
_COLUMNS = {
    "id": "_id",
    "role_id": "_id",
    "name": "name",
    "description": "description",
    "created_at": "createdAt",
}
"""What a search may be sorted by."""


class Role(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A role of a tenant."""

    id: int = msgspec.field(name="_id")
    name: str
    description: str
    menus: tuple[int, ...] = ()
    created_at: datetime

    @property
    def subject(self) -> Subject:
        """The role in the audit log."""
        return Subject("role", str(self.id), self.name)


class RoleStore:
    """The collection `roles`."""

    def __init__(self, database: Database) -> None:
        self._roles = database["roles"]
        self.next_id = IdAllocator(database, "roles", ID_BLOCK).take

    async def get(self, tenant: str, role_id: int, session: Session | None = None) -> Role | None:
        """One role of a tenant."""
        found = await self.find(tenant, [role_id], session)
        return found.get(role_id)

    async def find(
        self, tenant: str, ids: Iterable[int], session: Session | None = None
    ) -> dict[int, Role]:
        """Those of `ids` that are roles of the tenant."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant}
        found = await self._roles.find(query, session=session).to_list(None)
        return {role.id: role for role in msgspec.convert(found, list[Role])}

    async def super_admin(self, tenant: str, session: Session | None = None) -> int | None:
        """The id of a tenant's role `super_admin`, None when there is no such tenant."""
        query = {"tenant": tenant, "name": SUPER_ADMIN}
        role = await self._roles.find_one(query, {"_id": 1}, session=session)
        return None if role is None else int(role["_id"])

    async def search(
        self, tenant: str, keyword: str, wanted: PageRequest
    ) -> tuple[list[Role], int]:
        """The page of the roles whose name contains the keyword, and how many there are."""
        query: dict[str, Any] = {"tenant": tenant}
        if keyword:
            query["name"] = containing(keyword)
        found, total = await find_page(
            self._roles, query, wanted.order(_COLUMNS), wanted.skip, wanted.limit
        )
        return msgspec.convert(found, list[Role]), total

    async def insert(self, tenant: str, role: Role, session: Session) -> None:
        """Add a role; raise `Conflict` when the tenant has one of that name."""
        document: Document = msgspec.to_builtins(role, builtin_types=(datetime,))
        document |= {"tenant": tenant, "updatedAt": role.created_at}
        try:
            await self._roles.insert_one(document, session=session)
        except DuplicateKey as error:
            raise _name_taken() from error

    async def update(self, tenant: str, role: Role, session: Session) -> None:
        """Set name, description and menus; raise `Conflict` when another one has the name."""
        changes = {
            "name": role.name,
            "description": role.description,
            "menus": list(role.menus),
            "updatedAt": datetime.now(UTC),
        }
        try:
            await self._roles.update_one(
                {"_id": role.id, "tenant": tenant}, {"$set": changes}, session=session
            )
        except DuplicateKey as error:
            raise _name_taken() from error

    async def delete(self, tenant: str, role_id: int, session: Session) -> None:
        """Remove a role."""
        await self._roles.delete_one({"_id": role_id, "tenant": tenant}, session=session)

    async def drop_menu(self, tenant: str, menu_id: int, session: Session) -> None:
        """Take a menu from every role."""
        await self._roles.update_many(
            {"tenant": tenant, "menus": menu_id}, {"$pull": {"menus": menu_id}}, session=session
        )


def _name_taken() -> Conflict:
    return Conflict("name is exist", field="name", code="name_repeated")
