"""Grants in MongoDB.

`grants`: `{_id, tenant, role, type, id, at}`; the id of an INTEGRATION is a string, all others are
numbers. One per role and resource.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from libs.common.contracts.access import ResourceType
from libs.common.store.mongo import Database
from libs.common.things import LAST_MEMBER, entity_id
from services.auth.changes import Change
from services.auth.grants.schemas import Resource, ResourceSearch

PAGE = 1000
"""Grants that a sweep looks at together."""
_COLUMNS = {"id": "id", "resource_id": "id", "resource_type": "type"}
"""What lists of resources may be sorted by."""


class GrantStore:
    """The collection `grants`."""

    def __init__(self, database: Database) -> None:
        self._grants = database["grants"]
        self._users = database["users"]

    async def search(
        self, tenant: str, role_id: int, wanted: ResourceSearch
    ) -> tuple[list[Resource], int]:
        """The page of a role's resources, and how many there are."""
        query: dict[str, Any] = {"tenant": tenant, "role": role_id}
        if wanted.resource_type is not None:
            query["type"] = wanted.resource_type.value
        page = self._grants.find(
            query, sort=wanted.order(_COLUMNS), skip=wanted.skip, limit=wanted.limit
        )
        found, total = await asyncio.gather(page.to_list(None), self._grants.count_documents(query))
        return [_resource(document) for document in found], total

    async def of_role(self, tenant: str, role_id: int, kind: ResourceType) -> list[Any]:
        """The ids of one type that a role is granted, in order."""
        query = {"tenant": tenant, "role": role_id, "type": kind.value}
        found = self._grants.find(query, {"type": 1, "id": 1, "_id": 0}).sort("id", 1)
        return [_resource(document).id async for document in found]

    async def count(self, tenant: str, role_id: int, change: Change) -> int:
        """How many resources a role is granted."""
        query = {"tenant": tenant, "role": role_id}
        return int(await self._grants.count_documents(query, session=change.session))

    async def add(
        self, tenant: str, role_id: int, resources: Sequence[Resource], change: Change
    ) -> list[Resource]:
        """Grant resources to a role; return those that it had not."""
        query = {"tenant": tenant, "role": role_id, **_any_of(resources)}
        found = self._grants.find(query, {"type": 1, "id": 1}, session=change.session)
        held = {_resource(document) async for document in found}
        new = [resource for resource in resources if resource not in held]
        now = datetime.now(UTC)
        if new:
            await self._grants.insert_many(
                [
                    {
                        "tenant": tenant,
                        "role": role_id,
                        "type": resource.type.value,
                        "id": resource.id,
                        "at": now,
                    }
                    for resource in new
                ],
                session=change.session,
            )
        return new

    async def remove(
        self, tenant: str, role_id: int, resources: Sequence[Resource], change: Change
    ) -> list[Resource]:
        """Take resources from a role; return those that it had."""
        query = {"tenant": tenant, "role": role_id, **_any_of(resources)}
        return (await self._remove(query, change)).get(role_id, [])

    async def forget(
        self, tenant: str, resources: Sequence[Resource], change: Change
    ) -> dict[int, list[Resource]]:
        """Take resources from every role of a tenant; return which roles had which.

        A device takes the grants of its entities along.
        """
        return await self._remove({"tenant": tenant, **_gone(resources)}, change)

    async def granted(self, tenant: str, resources: Sequence[Resource]) -> bool:
        """Tell whether any of `resources`, or an entity of one, is granted to any role."""
        query = {"tenant": tenant, **_gone(resources)}
        return await self._grants.find_one(query, {"_id": 1}) is not None

    async def older(self, age: timedelta, after: Any) -> list[tuple[Any, str, Resource]]:
        """A page of the grants of that age, behind the one with the id `after`."""
        query: dict[str, Any] = {"at": {"$lt": datetime.now(UTC) - age}}
        if after is not None:
            query["_id"] = {"$gt": after}
        page = self._grants.find(query, sort=[("_id", 1)], limit=PAGE)
        return [(one["_id"], one["tenant"], _resource(one)) async for one in page]

    async def roles_of(self, tenant: str, user_id: int, change: Change) -> list[int]:
        """The ids of a user's roles; none for an unknown user."""
        user = await self._users.find_one(
            {"_id": user_id, "tenant": tenant}, {"roles": 1}, session=change.session
        )
        return [int(role) for role in user["roles"]] if user else []

    async def _remove(self, query: dict[str, Any], change: Change) -> dict[int, list[Resource]]:
        removed: dict[int, list[Resource]] = defaultdict(list)
        ids = []
        async for document in self._grants.find(query, session=change.session):
            ids.append(document["_id"])
            removed[int(document["role"])].append(_resource(document))
        if ids:
            await self._grants.delete_many({"_id": {"$in": ids}}, session=change.session)
        return removed


def _any_of(resources: Iterable[Resource]) -> dict[str, Any]:
    ids: dict[str, list[int | str]] = defaultdict(list)
    for resource in resources:
        ids[resource.type.value].append(resource.id)
    return {"$or": [{"type": kind, "id": {"$in": held}} for kind, held in ids.items()]}


def _gone(resources: Sequence[Resource]) -> dict[str, Any]:
    """Resources that are gone, and the entities of devices among them: ids from a range each."""
    entities = [
        {
            "type": "ENTITY",
            "id": {"$gte": entity_id(device, 0), "$lte": entity_id(device, LAST_MEMBER)},
        }
        for device in (each.id for each in resources if each.type is ResourceType.DEVICE)
        if isinstance(device, int)
    ]
    return {"$or": [*_any_of(resources)["$or"], *entities]}


def _resource(document: dict[str, Any]) -> Resource:
    return Resource(ResourceType(document["type"]), plain_id(document["id"]))


def plain_id(stored: int | str) -> int | str:
    """Large numbers come as BSON's own kind of int, which nothing else encodes."""
    return stored if isinstance(stored, str) else int(stored)
