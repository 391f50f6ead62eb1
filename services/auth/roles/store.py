"""Roles in MongoDB.

`roles`: `{_id, tenant, name, description, menus: [menuId], createdAt, updatedAt}`; which users
have a role stands in `users.roles`, what it shows them in `grants`.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from libs.common.errors import Conflict
from libs.common.store.mongo import Collection, Database, DuplicateKey, containing
from services.auth.changes import Change
from services.auth.roles.schemas import Role, RoleCounts, Search

_COLUMNS = {
    "id": "_id",
    "role_id": "_id",
    "name": "name",
    "description": "description",
    "created_at": "createdAt",
}
"""What a search may be sorted by."""


class RoleStore:
    """The collection `roles`."""

    def __init__(self, database: Database) -> None:
        self._roles = database["roles"]
        self._users = database["users"]
        self._grants = database["grants"]

    async def get(self, tenant: str, role_id: int, change: Change | None = None) -> Role | None:
        """One role of a tenant."""
        session = None if change is None else change.session
        query = {"_id": role_id, "tenant": tenant}
        document = await self._roles.find_one(query, session=session)
        return None if document is None else _role(document)

    async def search(self, tenant: str, wanted: Search) -> tuple[list[Role], int]:
        """The page of the roles whose name contains the keyword, and how many there are."""
        query: dict[str, Any] = {"tenant": tenant}
        if wanted.keyword:
            query["name"] = containing(wanted.keyword)
        page = self._roles.find(
            query, sort=wanted.order(_COLUMNS), skip=wanted.skip, limit=wanted.limit
        )
        found, total = await asyncio.gather(page.to_list(None), self._roles.count_documents(query))
        return [_role(document) for document in found], total

    async def counts(self, tenant: str, ids: Sequence[int]) -> dict[int, RoleCounts]:
        """Users and granted integrations of roles."""
        of_roles = {"$in": list(ids)}
        users, integrations = await asyncio.gather(
            _counted(
                self._users,
                {"tenant": tenant, "roles": of_roles},
                {"$unwind": "$roles"},
                {"$group": {"_id": "$roles", "count": {"$sum": 1}}},
            ),
            _counted(
                self._grants,
                {"tenant": tenant, "role": of_roles, "type": "INTEGRATION"},
                {"$group": {"_id": "$role", "count": {"$sum": 1}}},
            ),
        )
        return {
            role_id: RoleCounts(users.get(role_id, 0), integrations.get(role_id, 0))
            for role_id in ids
        }

    async def has_users(self, tenant: str, role_id: int, change: Change) -> bool:
        """Tell whether any user has the role."""
        query = {"tenant": tenant, "roles": role_id}
        return await self._users.find_one(query, {"_id": 1}, session=change.session) is not None

    async def insert(self, tenant: str, role: Role, change: Change) -> None:
        """Add a role; raise `Conflict` when the tenant has one of that name."""
        document = {
            "_id": role.id,
            "tenant": tenant,
            "name": role.name,
            "description": role.description,
            "menus": list(role.menus),
            "createdAt": role.created_at,
            "updatedAt": role.created_at,
        }
        try:
            await self._roles.insert_one(document, session=change.session)
        except DuplicateKey as error:
            raise _name_taken() from error

    async def update(self, tenant: str, role: Role, change: Change) -> None:
        """Set name, description and menus; raise `Conflict` when another one has the name."""
        changes = {
            "name": role.name,
            "description": role.description,
            "menus": list(role.menus),
            "updatedAt": datetime.now(UTC),
        }
        try:
            await self._roles.update_one(
                {"_id": role.id, "tenant": tenant}, {"$set": changes}, session=change.session
            )
        except DuplicateKey as error:
            raise _name_taken() from error

    async def delete(self, tenant: str, role_id: int, change: Change) -> None:
        """Remove a role with its grants."""
        session = change.session
        await self._roles.delete_one({"_id": role_id, "tenant": tenant}, session=session)
        await self._grants.delete_many({"tenant": tenant, "role": role_id}, session=session)


async def _counted(
    collection: Collection, query: dict[str, Any], *stages: dict[str, Any]
) -> dict[int, int]:
    rows = await collection.aggregate([{"$match": query}, *stages])
    return {row["_id"]: row["count"] async for row in rows}


def _name_taken() -> Conflict:
    return Conflict("name is exist", field="name", code="name_repeated")


def _role(document: dict[str, Any]) -> Role:
    return Role(
        id=int(document["_id"]),
        name=document["name"],
        description=document["description"],
        menus=tuple(map(int, document["menus"])),
        created_at=document["createdAt"],
    )
