"""The migrations of `management`'s database."""

from datetime import UTC, datetime

from libs.common.store.migrations import DAY, Migration, create_missing
from libs.common.store.mongo import Database

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


QUIET_DAYS = 90
"""Days without an announcement after which an integration is deleted; also the retention of
excluded devices."""


async def _add_expiry(database: Database) -> None:
    quiet = QUIET_DAYS * DAY
    await database["integrations"].create_index("announcedAt", expireAfterSeconds=quiet)
    await database["openapi_links"].update_many(
        {"link.state": "left"}, {"$set": {"leftAt": datetime.now(UTC)}}
    )
    await database["openapi_links"].create_index("leftAt", expireAfterSeconds=quiet)


async def _canvases(database: Database) -> None:
    for name in ("canvases", "home_dashboards", "resources"):
        await create_missing(database, name)
    attached = [("tenant", 1), ("attachType", 1), ("attachId", 1)]
    await database["canvases"].create_index(attached, name="attached")
    await database["canvases"].create_index(
        "attachId", unique=True, partialFilterExpression={"attachType": "DEVICE"}
    )
    await database["home_dashboards"].create_index([("tenant", 1), ("dashboard", 1)])
    await database["resources"].create_index([("tenant", 1), ("size", 1)], name="tenant_size")
    await database["resources"].create_index([("tenant", 1), ("usedBy", 1)])
    await database["resources"].create_index("expiresAt", expireAfterSeconds=0)


DOWNLINK_DAYS = 30
"""Days for which downlinks are kept, because a device of class A may rarely send uplinks."""


async def _networks(database: Database) -> None:
    for name in ("network_servers", "network_routes", "network_downlinks"):
        await create_missing(database, name)
    await database["network_downlinks"].create_index("at", expireAfterSeconds=DOWNLINK_DAYS * DAY)


async def _hooks(database: Database) -> None:
    await database["network_servers"].create_index(
        "hook", unique=True, partialFilterExpression={"hook": {"$exists": True}}
    )
    device = [("tenant", 1), ("integration", 1), ("identifier", 1), ("at", 1)]
    await database["network_downlinks"].create_index(device, name="device")


MIGRATIONS = (
    Migration(1, "dashboards, integrations, outbox", _first),
    Migration(2, "collections of the integration openapi-client", _openapi_client),
    Migration(3, "expiry of silent integrations and excluded devices", _add_expiry),
    Migration(4, "canvases, homes of users, uploaded resources", _canvases),
    Migration(5, "collections of integrations with network servers", _networks),
    Migration(6, "addresses of webhooks, downlinks of a device", _hooks),
)
