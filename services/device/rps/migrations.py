"""Indexes of RPS records."""

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database


async def _make_indexes(database: Database) -> None:
    keys = [("tenant", 1), ("applicationId", 1), ("_id", 1)]
    await database["rps"].create_index(keys, name="application")


MIGRATIONS = [Migration(300, "indexes of RPS records", _make_indexes)]
