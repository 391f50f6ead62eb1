"""Indexes of what integrations ask."""

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database


async def _list_devices(database: Database) -> None:
    await database["devices"].create_index([("integration", 1), ("_id", 1)], name="integration")


MIGRATIONS = [Migration(500, "devices by integration", _list_devices)]
