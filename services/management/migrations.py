"""The versions of `management`'s database."""

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, create_missing

COLLECTIONS = ("dashboards", "integrations", "outbox", "counters")


async def _first(database: Database) -> None:
    for name in COLLECTIONS:
        await create_missing(database, name)
    await database["dashboards"].create_index([("tenant", 1), ("name", 1)], unique=True)
    await database["outbox"].create_index("at")


async def _openapi_client(database: Database) -> None:
    for name in ("openapi_accounts", "openapi_links", "openapi_commands"):
        await create_missing(database, name)
    await database["openapi_commands"].create_index("keepUntil", expireAfterSeconds=0)
    await database["openapi_commands"].create_index("told")


MIGRATIONS = (
    Migration(1, "dashboards, integrations, outbox", _first),
    Migration(2, "what the integration openapi-client keeps", _openapi_client),
)
