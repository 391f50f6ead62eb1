"""The migrations of `management`'s database."""

from datetime import UTC, datetime
from functools import partial

from libs.common.store.migrations import DAY, Migration, create_collections, index
from libs.common.store.mongo import Database

UNANNOUNCED_RETENTION_DAYS = 90
"""Days without an announcement after which an integration is deleted; also the retention of
excluded devices."""
DOWNLINK_RETENTION_DAYS = 30
"""Days for which downlinks are kept, because a device of class A may rarely send uplinks."""
DEVICE_INDEX_FIELDS = ("tenant", "integration", "identifier", "at")
COLLECTIONS = {
    "dashboards": [index("tenant", "name", unique=True)],
    "integrations": [index("announcedAt", expireAfterSeconds=UNANNOUNCED_RETENTION_DAYS * DAY)],
    "outbox": [index("at")],
    "openapi_links": [index("leftAt", expireAfterSeconds=UNANNOUNCED_RETENTION_DAYS * DAY)],
    "openapi_commands": [index("keepUntil", expireAfterSeconds=0), index("told")],
    "canvases": [
        index("tenant", "attachType", "attachId", name="attached"),
        index("attachId", unique=True, where={"attachType": "DEVICE"}),
    ],
    "home_dashboards": [index("tenant", "dashboard")],
    "resources": [
        index("tenant", "size", name="tenant_size"),
        index("tenant", "usedBy"),
        index("expiresAt", expireAfterSeconds=0),
    ],
    "network_servers": [index("hook", unique=True, where={"hook": {"$exists": True}})],
    "network_downlinks": [
        index("at", expireAfterSeconds=DOWNLINK_RETENTION_DAYS * DAY),
        index(*DEVICE_INDEX_FIELDS, name="device"),
    ],
    **dict.fromkeys(("openapi_accounts", "network_routes", "counters"), ()),
}
"""The indexes of each collection. Migrations create collections, because transactions cannot."""


async def _set_exclusion_times(database: Database) -> None:
    """Set the time from which devices that version 0.1 excluded from syncs expire."""
    await database["openapi_links"].update_many(
        {"link.state": "left"}, {"$set": {"leftAt": datetime.now(UTC)}}
    )


MIGRATIONS = (
    Migration(
        4000, "collections and indexes", partial(create_collections, collections=COLLECTIONS)
    ),
    Migration(3, "times of excluded devices", _set_exclusion_times),
)
"""Migrations by number. Increase the first number when `COLLECTIONS` changes, to run it again."""
