"""Groups of devices in MongoDB, on the wire, and their errors.

`device_groups`: `{_id, tenant, name, createdAt, joined}`; `joined` grows with every addition of
devices, so that adding to a group and deleting it conflict. A group without a name is being
deleted: nobody sees it any more, and nobody joins it.
"""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from libs.common.errors import InvalidInput, NotFound
from libs.common.http import console
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import (
    Database,
    Document,
    DuplicateKey,
    Session,
    contains_text,
    find_page,
)

GROUP_FIELD = "group_name"
"""Where a device names its group."""


def group_not_found(group_id: int) -> NotFound:
    """There is no such group, or none any more."""
    text = f"there is no group {group_id}"
    return NotFound(text, field="group_id", code="device_group_not_found")


def group_exists(name: str) -> InvalidInput:
    """A name is taken."""
    text = f"there is a group {name} already"
    return InvalidInput(text, field="name", code="device_group_name_exists")


def too_many_groups(most: int, field: str = "name") -> InvalidInput:
    """A tenant has as many as it may."""
    text = f"there are at most {most} groups"
    return InvalidInput(text, field=field, code="device_group_number_limitation")


GroupName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=127,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
        description="1 to 127 characters, not all blank, none a control character",
    ),
]


class FindGroups(console.PageRequest, kw_only=True):
    """Body of `POST /device-group/search`: a part of the name, in any case."""

    name: Annotated[str, msgspec.Meta(max_length=127)] | None = None
    with_device_count: bool | None = None


class NamedGroup(msgspec.Struct):
    """Body of `POST /device-group` and `PUT /device-group/{group_id}`."""

    name: GroupName


class GroupRef(msgspec.Struct):
    """Answer of `POST /device-group`."""

    id: str


class ShownGroup(console.ResponseModel, kw_only=True):
    """A group in a list."""

    id: str
    name: str
    device_count: int | None = None
    """Of the devices that the caller sees, where it is asked for; absent when there are none."""


class GroupNumber(msgspec.Struct):
    """Answer of `GET /device-group/number`."""

    number: int


MOST_GROUPS = 1000
"""Of a tenant."""
COLUMNS = {"id": "_id", "name": "name", "created_at": "createdAt"}
"""What groups may be sorted by."""
_NAMED: Document = {"name": {"$type": "string"}}
GroupNames = dict[int, str]
"""Names by id."""


class GroupStore:
    """The collection `device_groups`."""

    def __init__(self, database: Database) -> None:
        self._groups = database["device_groups"]
        self._ids = IdAllocator(database, "device_groups", block=20)

    async def search(self, tenant: str, wanted: FindGroups) -> tuple[GroupNames, int]:
        """A page of the groups, in order, and how many match in all."""
        query = _named(tenant)
        if wanted.name:
            query["$and"] = [{"name": contains_text(wanted.name, "name")}]
        order = wanted.order(COLUMNS)
        found, total = await find_page(self._groups, query, order, wanted.skip, wanted.size)
        return {group["_id"]: group["name"] for group in found}, total

    async def count(self, tenant: str) -> int:
        """How many a tenant has."""
        return await self._groups.count_documents(_named(tenant))

    async def names(self, tenant: str, ids: Iterable[int]) -> GroupNames:
        """The names of groups; what is unknown is missing."""
        query = {"_id": {"$in": list(ids)}, **_named(tenant)}
        return {group["_id"]: group["name"] async for group in self._groups.find(query)}

    async def with_names(self, tenant: str, names: Collection[str]) -> list[int]:
        """The groups of some names."""
        query = {"tenant": tenant, "name": {"$in": list(names)}}
        return [row["_id"] async for row in self._groups.find(query, {"_id": 1})]

    async def all_names(self, tenant: str) -> list[str]:
        """The names of all groups, in their order."""
        found = self._groups.find(_named(tenant), {"name": 1}, sort=[("name", 1)])
        return [group["name"] async for group in found]

    async def add(self, tenant: str, name: str) -> int:
        """Make a group; raise `InvalidInput` when there is one of the name, or too many."""
        if await self.count(tenant) >= MOST_GROUPS:
            raise too_many_groups(MOST_GROUPS)
        group_id = await self._ids.take()
        group = {"_id": group_id, "tenant": tenant, "name": name, "createdAt": datetime.now(UTC)}
        try:
            await self._groups.insert_one(group)
        except DuplicateKey as error:
            raise group_exists(name) from error
        return group_id

    async def check_room(self, tenant: str, name: str) -> None:
        """Raise `InvalidInput` when there is no group of a name, and none can be made."""
        if await self._find(tenant, name) is None and await self.count(tenant) >= MOST_GROUPS:
            raise too_many_groups(MOST_GROUPS, GROUP_FIELD)

    async def beyond(self, tenant: str, names: Collection[str]) -> set[str]:
        """Those of some names, in their order, whose groups would exceed what a tenant may have."""
        known = set(await self.all_names(tenant))
        new = [name for name in dict.fromkeys(names) if name not in known]
        return set(new[max(0, MOST_GROUPS - len(known)) :])

    async def of_name(self, tenant: str, name: str) -> int:
        """The group of a name, which is made when there is none; raise `InvalidInput`."""
        found = await self._find(tenant, name)
        if found is not None:
            return found
        try:
            return await self.add(tenant, name)
        except InvalidInput as error:
            found = await self._find(tenant, name)
            if found is None:
                raise too_many_groups(MOST_GROUPS, GROUP_FIELD) from error
            return found  # somebody else has made it meanwhile

    async def _find(self, tenant: str, name: str) -> int | None:
        found = await self._groups.find_one({"tenant": tenant, "name": name}, {"_id": 1})
        return None if found is None else int(found["_id"])

    async def rename(self, tenant: str, group_id: int, name: str) -> None:
        """Give a group another name; raise `NotFound` or `InvalidInput`."""
        try:
            await self._change(tenant, group_id, {"$set": {"name": name}})
        except DuplicateKey as error:
            raise group_exists(name) from error

    async def join(self, tenant: str, group_id: int, session: Session) -> None:
        """Devices join a group in the caller's transaction; raise `NotFound` without the group."""
        await self._change(tenant, group_id, {"$inc": {"joined": 1}}, session)

    async def begin_end(self, tenant: str, group_id: int) -> None:
        """From now on there is no such group; raise `NotFound` when there is none already."""
        await self._change(tenant, group_id, {"$unset": {"name": ""}})

    async def _change(
        self, tenant: str, group_id: int, change: Document, session: Session | None = None
    ) -> None:
        query = {"_id": group_id, **_named(tenant)}
        found = await self._groups.update_one(query, change, session=session)
        if not found.matched_count:
            raise group_not_found(group_id)

    async def ending_tenants(self) -> list[str]:
        """Return the tenants of groups that are being deleted."""
        return list(await self._groups.distinct("tenant", {"name": None}))

    async def ending(self, tenant: str) -> list[int]:
        """Return the groups of a tenant that are being deleted."""
        found = self._groups.find({"tenant": tenant, "name": None}, {"_id": 1})
        return [group["_id"] async for group in found]

    async def end(self, group_id: int) -> None:
        """No device is in it any more."""
        await self._groups.delete_one({"_id": group_id})


def _named(tenant: str) -> Document:
    return {"tenant": tenant, **_NAMED}
