"""The migrations of `management`'s database."""

from datetime import UTC, datetime
from functools import partial

from libs.common.store.migrations import (
    DAY_SECONDS,
    Migration,
    build_index_model,
    create_collections,
)
from libs.common.store.mongo import Database

UNANNOUNCED_RETENTION_DAYS = 90
"""Days without an announcement after which an integration is deleted; also the retention of
excluded devices."""
DOWNLINK_RETENTION_DAYS = 30
"""Days for which downlinks are kept, because a device of class A may rarely send uplinks."""
DOWNLINK_INDEX_FIELDS = ("tenant", "integration", "identifier", "at")
INDEXES_BY_COLLECTION = {
    "dashboards": [build_index_model("tenant", "name", unique=True)],
    "integrations": [
        build_index_model(
            "announcedAt", expireAfterSeconds=UNANNOUNCED_RETENTION_DAYS * DAY_SECONDS
        )
    ],
    "outbox": [build_index_model("at")],
    "openapi_links": [
        build_index_model("leftAt", expireAfterSeconds=UNANNOUNCED_RETENTION_DAYS * DAY_SECONDS)
    ],
    "openapi_commands": [
        build_index_model("keepUntil", expireAfterSeconds=0),
        build_index_model("told"),
    ],
    "canvases": [
        build_index_model("tenant", "attachType", "attachId", name="attached"),
        build_index_model("attachId", unique=True, where={"attachType": "DEVICE"}),
    ],
    "home_dashboards": [build_index_model("tenant", "dashboard")],
    "resources": [
        build_index_model("tenant", "size", name="tenant_size"),
        build_index_model("tenant", "usedBy"),
        build_index_model("expiresAt", expireAfterSeconds=0),
    ],
    "network_servers": [build_index_model("hook", unique=True, where={"hook": {"$exists": True}})],
    "network_downlinks": [
        build_index_model("at", expireAfterSeconds=DOWNLINK_RETENTION_DAYS * DAY_SECONDS),
        build_index_model(*DOWNLINK_INDEX_FIELDS, name="device"),
    ],
    **dict.fromkeys(("openapi_accounts", "network_routes", "counters"), ()),
}
"""The indexes of each collection. Migrations create collections, because transactions cannot."""


async def _set_exclusion_times(database: Database) -> None:
    """Set the time of exclusions from syncs, which version 0.1 stored without a time."""
    await database["openapi_links"].update_many(
        {"link.state": "left"}, {"$set": {"leftAt": datetime.now(UTC)}}
    )


MIGRATIONS = (
    Migration(
        4000,
        "collections and indexes",
        partial(create_collections, collections=INDEXES_BY_COLLECTION),
    ),
    Migration(3, "times of excluded devices", _set_exclusion_times),
)
"""Migrations by number. When `INDEXES_BY_COLLECTION` changes, increase the number of the first
migration to run it again."""
