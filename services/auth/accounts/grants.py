"""Grants in MongoDB.

`grants`: `{_id, tenant, role, type, id, at}`; the id of an INTEGRATION is a string, all others are
numbers. One per role and resource.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from libs.common.contracts.access import ResourceType
from libs.common.http.console import PageRequest
from libs.common.store.mongo import Database, Document, Session, find_page
from libs.common.things import LAST_MEMBER, entity_id

PAGE = 1000
"""Grants that a sweep looks at together."""
_COLUMNS = {"id": "id", "resource_id": "id", "resource_type": "type"}
"""What lists of resources may be sorted by."""
_BY_TYPE = {"$group": {"_id": "$type", "ids": {"$push": "$id"}}}
"""One row for each type: 10,000 grants are answered in 12 ms, in rows of their own in 50. The
index of grants has both fields, so that none of their documents is read."""


class Resource(msgspec.Struct, frozen=True):
    """One resource: integrations have names for ids, all others numbers."""

    type: ResourceType
    id: int | str


class GrantStore:
    """The collection `grants`."""

    def __init__(self, database: Database) -> None:
        self._grants = database["grants"]

    async def search(
        self, tenant: str, role_id: int, kind: ResourceType | None, wanted: PageRequest
    ) -> tuple[list[Resource], int]:
        """The page of a role's resources, of one type or all, and how many there are."""
        query: Document = {"tenant": tenant, "role": role_id}
        if kind is not None:
            query["type"] = kind.value
        found, total = await find_page(
            self._grants, query, wanted.order(_COLUMNS), wanted.skip, wanted.limit
        )
        return msgspec.convert(found, list[Resource]), total

    async def list_ids(self, tenant: str, role_id: int, kind: ResourceType) -> list[Any]:
        """The ids of one type that a role is granted, in order."""
        query = {"tenant": tenant, "role": role_id, "type": kind.value}
        found = self._grants.find(query, {"id": 1, "_id": 0}).sort("id", 1)
        return [document["id"] async for document in found]

    async def ids_by_type(
        self, tenant: str, roles: Sequence[int], session: Session
    ) -> dict[ResourceType, frozenset[Any]]:
        """The ids that roles are granted together, by type."""
        query = {"tenant": tenant, "role": {"$in": list(roles)}}
        rows = await self._grants.aggregate([{"$match": query}, _BY_TYPE], session=session)
        held = {row["_id"]: frozenset(row["ids"]) async for row in rows}
        return {kind: held.get(kind.value, frozenset()) for kind in ResourceType}

    async def held(
        self, tenant: str, roles: Sequence[int], kind: ResourceType, resource: int | str
    ) -> bool:
        """Tell whether one of `roles` is granted a resource."""
        query = {"tenant": tenant, "role": {"$in": roles}, "type": kind.value, "id": resource}
        return await self._grants.find_one(query, {"_id": 1}) is not None

    async def count_integrations(self, tenant: str, roles: Sequence[int]) -> dict[int, int]:
        """How many integrations each of `roles` is granted."""
        query = {"tenant": tenant, "role": {"$in": list(roles)}, "type": "INTEGRATION"}
        rows = await self._grants.aggregate(
            [{"$match": query}, {"$group": {"_id": "$role", "count": {"$sum": 1}}}]
        )
        return {row["_id"]: row["count"] async for row in rows}

    async def count(self, tenant: str, role_id: int, session: Session) -> int:
        """How many resources a role is granted."""
        query = {"tenant": tenant, "role": role_id}
        return await self._grants.count_documents(query, session=session)

    async def add(
        self, tenant: str, role_id: int, resources: Sequence[Resource], session: Session
    ) -> list[Resource]:
        """Grant resources to a role; return those that it had not."""
        query = {"tenant": tenant, "role": role_id, **_any_of(resources)}
        found = self._grants.find(query, {"type": 1, "id": 1}, session=session)
        held = msgspec.convert(await found.to_list(None), set[Resource])
        new = [resource for resource in resources if resource not in held]
        if new:
            common = {"tenant": tenant, "role": role_id, "at": datetime.now(UTC)}
            documents = [{**common, **msgspec.to_builtins(resource)} for resource in new]
            await self._grants.insert_many(documents, session=session)
        return new

    async def remove(
        self, tenant: str, role_id: int, resources: Sequence[Resource], session: Session
    ) -> list[Resource]:
        """Take resources from a role; return those that it had."""
        query = {"tenant": tenant, "role": role_id, **_any_of(resources)}
        return (await self._remove(query, session)).get(role_id, [])

    async def forget(
        self, tenant: str, resources: Sequence[Resource], session: Session
    ) -> dict[int, list[Resource]]:
        """Take resources from every role of a tenant; return which roles had which.

        A device takes the grants of its entities along.
        """
        return await self._remove({"tenant": tenant, **_gone(resources)}, session)

    async def granted(self, tenant: str, resources: Sequence[Resource]) -> bool:
        """Tell whether any of `resources`, or an entity of one, is granted to any role."""
        query = {"tenant": tenant, **_gone(resources)}
        return await self._grants.find_one(query, {"_id": 1}) is not None

    async def older(self, age: timedelta, after: Any) -> list[tuple[Any, str, Resource]]:
        """A page of the grants of that age, behind the one with the id `after`."""
        query: Document = {"at": {"$lt": datetime.now(UTC) - age}}
        if after is not None:
            query["_id"] = {"$gt": after}
        page = self._grants.find(query, sort=[("_id", 1)], limit=PAGE)
        return [(one["_id"], one["tenant"], msgspec.convert(one, Resource)) async for one in page]

    async def delete_role(self, tenant: str, role_id: int, session: Session) -> None:
        """Take everything from a role."""
        await self._grants.delete_many({"tenant": tenant, "role": role_id}, session=session)

    async def _remove(self, query: Document, session: Session) -> dict[int, list[Resource]]:
        removed: dict[int, list[Resource]] = defaultdict(list)
        ids = []
        async for document in self._grants.find(query, session=session):
            ids.append(document["_id"])
            removed[document["role"]].append(msgspec.convert(document, Resource))
        if ids:
            query = {"_id": {"$in": ids}, "tenant": query["tenant"]}
            await self._grants.delete_many(query, session=session)
        return removed


def _any_of(resources: Iterable[Resource]) -> Document:
    ids: dict[str, list[int | str]] = defaultdict(list)
    for resource in resources:
        ids[resource.type.value].append(resource.id)
    return {"$or": [{"type": kind, "id": {"$in": held}} for kind, held in ids.items()]}


def _gone(resources: Sequence[Resource]) -> Document:
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
