"""The collection of groups, and how devices are found by theirs."""

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, create_missing

BY_GROUP = ("tenant", "group", "_id", "integration")
"""So that who sees the devices of a group, and how many it has, is told by the index."""


async def _make_groups(database: Database) -> None:
    await create_missing(database, "device_groups")
    named = {"name": {"$type": "string"}}  # one that is being deleted has none
    await database["device_groups"].create_index(
        [("tenant", 1), ("name", 1)], name="name", unique=True, partialFilterExpression=named
    )
    await database["devices"].create_index([(field, 1) for field in BY_GROUP], name="group")


MIGRATIONS = [Migration(700, "groups of devices", _make_groups)]
