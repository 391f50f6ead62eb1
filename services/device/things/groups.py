"""Groups of devices: their records in MongoDB, schemas and errors.

`device_groups`: `{_id, tenant, name, createdAt, joined}`. `joined` is incremented when devices are
added, so that adding to a group conflicts with its deletion. A group without a name is being
deleted: it is not visible any more, and no device can be added.
"""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from libs.common.errors import InvalidInput, NotFound
from libs.common.http import console
from libs.common.http.console import name_constraint
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import (
    Database,
    Document,
    Session,
    build_text_condition,
    find_page,
    raise_on_duplicate,
)

GROUP_REQUEST_FIELD = "group_name"
"""The field of a request that names the group of a new device."""


def group_not_found(group_id: int) -> NotFound:
    """Return 404: the group does not exist, or is being deleted."""
    text = f"there is no group {group_id}"
    return NotFound(text, field="group_id", code="device_group_not_found")


def group_exists_error(name: str) -> InvalidInput:
    """Return 400: a group with this name exists."""
    text = f"a group with the name {name} exists already"
    return InvalidInput(text, field="name", code="device_group_name_exists")


def too_many_groups_error(maximum: int, field: str = "name") -> InvalidInput:
    """Return 400: the tenant has as many groups as allowed."""
    text = f"a tenant can have at most {maximum} groups"
    return InvalidInput(text, field=field, code="device_group_number_limitation")


GroupName = Annotated[str, name_constraint(127)]


class FindGroups(console.PageRequest, kw_only=True):
    """Body of `POST /device-group/search`: a part of the name, in any case."""

    name: Annotated[str, msgspec.Meta(max_length=127)] | None = None
    with_device_count: bool | None = None
    """Whether to count the devices of each group."""


class SaveGroup(msgspec.Struct):
    """Body of `POST /device-group` and `PUT /device-group/{group_id}`."""

    name: GroupName


class GroupRef(msgspec.Struct):
    """Answer of `POST /device-group`."""

    id: str


class GroupResponse(console.ResponseModel, kw_only=True):
    """A group in a list."""

    id: str
    name: str
    device_count: int | None = None
    """Devices in the group that the caller may see, if requested; absent when there are none."""


class GroupCount(msgspec.Struct):
    """Answer of `GET /device-group/number`."""

    number: int
    """Number of groups of the tenant."""


MAX_GROUPS = 1000
"""Maximum groups of a tenant."""
SORT_FIELD_BY_COLUMN = {"id": "_id", "name": "name", "created_at": "createdAt"}
"""The fields by which groups can be sorted."""
GroupNamesById = dict[int, str]
"""Names by group id."""


class GroupStore:
    """The collection `device_groups`."""

    def __init__(self, database: Database) -> None:
        self._groups = database["device_groups"]
        self._ids = IdAllocator(database, "device_groups", block=20)

    async def search(self, tenant: str, request: FindGroups) -> tuple[GroupNamesById, int]:
        """Return a page of groups, in the requested order, and the total number of matches."""
        query = _active_query(tenant)
        if request.name:
            query["$and"] = [{"name": build_text_condition(request.name, "name")}]
        order = request.order(SORT_FIELD_BY_COLUMN)
        rows, total = await find_page(self._groups, query, order, request.skip, request.size)
        return {group["_id"]: group["name"] for group in rows}, total

    async def count(self, tenant: str) -> int:
        """Return the number of groups of a tenant."""
        return await self._groups.count_documents(_active_query(tenant))

    async def find_names(self, tenant: str, ids: Iterable[int]) -> GroupNamesById:
        """Return the names of groups by id; unknown ids are missing."""
        query = {"_id": {"$in": list(ids)}, **_active_query(tenant)}
        return {group["_id"]: group["name"] async for group in self._groups.find(query)}

    async def find_ids(self, tenant: str, names: Collection[str]) -> list[int]:
        """Return the ids of the groups with these names."""
        query = {"tenant": tenant, "name": {"$in": list(names)}}
        return [row["_id"] async for row in self._groups.find(query, {"_id": 1})]

    async def list_names(self, tenant: str) -> list[str]:
        """Return the names of all groups of a tenant, sorted."""
        cursor = self._groups.find(_active_query(tenant), {"name": 1}, sort=[("name", 1)])
        return [group["name"] async for group in cursor]

    async def add(self, tenant: str, name: str) -> int:
        """Create a group and return its id.

        Raises `InvalidInput` when the name is taken or the tenant has `MAX_GROUPS` groups.
        """
        if await self.count(tenant) >= MAX_GROUPS:
            raise too_many_groups_error(MAX_GROUPS)
        group_id = await self._ids.allocate()
        group = {"_id": group_id, "tenant": tenant, "name": name, "createdAt": datetime.now(UTC)}
        with raise_on_duplicate(group_exists_error(name)):
            await self._groups.insert_one(group)
        return group_id

    async def check_exists_or_fits(self, tenant: str, name: str) -> None:
        """Raise `InvalidInput` unless a group has this name, or can be created."""
        if await self._find(tenant, name) is None and await self.count(tenant) >= MAX_GROUPS:
            raise too_many_groups_error(MAX_GROUPS, GROUP_REQUEST_FIELD)

    async def find_beyond_limit(self, tenant: str, names: Collection[str]) -> set[str]:
        """Return those names whose groups do not exist and would exceed the limit."""
        known_names = set(await self.list_names(tenant))
        new = [name for name in dict.fromkeys(names) if name not in known_names]
        return set(new[max(0, MAX_GROUPS - len(known_names)) :])

    async def find_or_create(self, tenant: str, name: str) -> int:
        """Return the id of the group with this name; create it if missing.

        Raises `InvalidInput` at the limit of groups.
        """
        group_id = await self._find(tenant, name)
        if group_id is not None:
            return group_id
        try:
            return await self.add(tenant, name)
        except InvalidInput as error:
            group_id = await self._find(tenant, name)
            if group_id is None:
                raise too_many_groups_error(MAX_GROUPS, GROUP_REQUEST_FIELD) from error
            return group_id  # another request created it meanwhile

    async def _find(self, tenant: str, name: str) -> int | None:
        document = await self._groups.find_one({"tenant": tenant, "name": name}, {"_id": 1})
        return None if document is None else int(document["_id"])

    async def rename(self, tenant: str, group_id: int, name: str) -> None:
        """Rename a group; raise `NotFound` or `InvalidInput` (name taken)."""
        with raise_on_duplicate(group_exists_error(name)):
            await self._change(tenant, group_id, {"$set": {"name": name}})

    async def record_join(self, tenant: str, group_id: int, session: Session) -> None:
        """Increment `joined` of a group that devices join, so that its deletion conflicts.

        Raises `NotFound`.
        """
        await self._change(tenant, group_id, {"$inc": {"joined": 1}}, session)

    async def mark_deleted(self, tenant: str, group_id: int) -> None:
        """Make a group invisible before its deletion; raise `NotFound`."""
        await self._change(tenant, group_id, {"$unset": {"name": ""}})

    async def _change(
        self, tenant: str, group_id: int, change: Document, session: Session | None = None
    ) -> None:
        query = {"_id": group_id, **_active_query(tenant)}
        result = await self._groups.update_one(query, change, session=session)
        if not result.matched_count:
            raise group_not_found(group_id)

    async def list_deleting_tenants(self) -> list[str]:
        """Return the tenants of groups that are being deleted."""
        return list(await self._groups.distinct("tenant", {"name": None}))

    async def list_deleting(self, tenant: str) -> list[int]:
        """Return the ids of a tenant's groups that are being deleted."""
        cursor = self._groups.find({"tenant": tenant, "name": None}, {"_id": 1})
        return [group["_id"] async for group in cursor]

    async def delete(self, group_id: int) -> None:
        """Delete a group that no device is in any more."""
        await self._groups.delete_one({"_id": group_id})


def _active_query(tenant: str) -> Document:
    return {"tenant": tenant, "name": {"$type": "string"}}
