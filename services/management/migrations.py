"""The versions of `management`'s database."""

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, create_missing

COLLECTIONS = ("dashboards", "integrations", "outbox", "counters")


async def _first(database: Database) -> None:
    for name in COLLECTIONS:
        await create_missing(database, name)
    await database["dashboards"].create_index([("tenant", 1), ("name", 1)], unique=True)
    await database["outbox"].create_index("at")


MIGRATIONS = (Migration(1, "dashboards, integrations, outbox", _first),)
