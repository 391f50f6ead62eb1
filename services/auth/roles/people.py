"""Which users have a role, in MongoDB: `users.roles` holds the ids of a user's roles."""

import asyncio
from collections.abc import Sequence
from typing import Any

from libs.common.store.mongo import Database, containing
from services.auth.changes import Change
from services.auth.roles.schemas import Person, Search

_COLUMNS = {
    "id": "_id",
    "user_id": "_id",
    "email": "email",
    "user_email": "email",
    "nickname": "nickname",
    "user_nickname": "nickname",
    "created_at": "createdAt",
}
"""What lists of users may be sorted by."""
_SHOWN = {"email": 1, "nickname": 1}


class RolePeople:
    """The field `roles` of the collection `users`."""

    def __init__(self, database: Database) -> None:
        self._users = database["users"]

    async def with_role(
        self, tenant: str, role_id: int, wanted: Search
    ) -> tuple[list[Person], int]:
        """The page of the role's users, and how many there are."""
        return await self._page({"tenant": tenant, "roles": role_id}, wanted)

    async def without_role(
        self, tenant: str, role_id: int, wanted: Search
    ) -> tuple[list[Person], int]:
        """The page of the tenant's users who do not have the role, and how many there are."""
        return await self._page({"tenant": tenant, "roles": {"$ne": role_id}}, wanted)

    async def of_ids(self, tenant: str, ids: Sequence[int]) -> dict[int, Person]:
        """Users of a tenant by id."""
        found = self._users.find({"_id": {"$in": list(ids)}, "tenant": tenant}, _SHOWN)
        return {document["_id"]: _person(document) async for document in found}

    async def add(self, tenant: str, role_id: int, ids: Sequence[int], change: Change) -> list[int]:
        """Give a role to users; return those of `ids` who had it not and have it now."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant, "roles": {"$ne": role_id}}
        return await self._set(query, {"$addToSet": {"roles": role_id}}, change)

    async def remove(
        self, tenant: str, role_id: int, ids: Sequence[int], change: Change
    ) -> list[int]:
        """Take a role from users; return those of `ids` who had it."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant, "roles": role_id}
        return await self._set(query, {"$pull": {"roles": role_id}}, change)

    async def somebody_has(self, tenant: str, role_id: int, change: Change) -> bool:
        """Tell whether a user who is not disabled has the role."""
        query = {"tenant": tenant, "roles": role_id, "enabled": True}
        return await self._users.find_one(query, {"_id": 1}, session=change.session) is not None

    async def _set(
        self, query: dict[str, Any], update: dict[str, Any], change: Change
    ) -> list[int]:
        found = self._users.find(query, {"_id": 1}, session=change.session).sort("_id", 1)
        ids = [int(document["_id"]) async for document in found]
        if ids:
            await self._users.update_many({"_id": {"$in": ids}}, update, session=change.session)
        return ids

    async def _page(self, query: dict[str, Any], wanted: Search) -> tuple[list[Person], int]:
        if wanted.keyword:
            match = containing(wanted.keyword)
            query["$or"] = [{"email": match}, {"nickname": match}]
        page = self._users.find(
            query, _SHOWN, sort=wanted.order(_COLUMNS), skip=wanted.skip, limit=wanted.limit
        )
        found, total = await asyncio.gather(page.to_list(None), self._users.count_documents(query))
        return [_person(document) for document in found], total


def _person(document: dict[str, Any]) -> Person:
    return Person(int(document["_id"]), document["email"], document["nickname"])
