"""Migrations of `workflow`'s database."""

from functools import partial

from libs.common.store.migrations import Migration, create_collections, drop_present, index
from libs.common.store.mongo import Database
from services.workflow.notifications.store import CHANNELS
from services.workflow.runs.store import ENDED_RUNS_FILTER
from services.workflow.triggers.deployed_flows import CHANGES_COLLECTION, CHANGES_RETENTION_SECONDS

COLLECTIONS = {
    "flows": [index("tenant", "-_id")],
    "flow_versions": [index("_id.flow")],
    "deployments": [index("component")],
    CHANGES_COLLECTION: [index("at", expireAfterSeconds=CHANGES_RETENTION_SECONDS)],
    "timers": [index("due")],
    "hooks": [index("token", unique=True), index("tenant", "method", "shape")],
    "runs": [
        index("flow", "key", unique=True),
        index("replica", where={"status": "RUNNING"}),
        index("flow", "-_id", name="log", where=ENDED_RUNS_FILTER),
        index("startedAt", name="age", where=ENDED_RUNS_FILTER),
    ],
    "outbox": [index("at")],
    "flow_secrets": [index("tenant", "flows")],
    "credentials": [index("tenant", "type", "accessKey", unique=True)],
    "alarm_notifications": [
        index("tenant", "settings.enabled"),
        *(index(f"due.{channel}", sparse=True) for channel in CHANNELS),
        *(index(f"claimed.{channel}", sparse=True) for channel in CHANNELS),
    ],
    "alarm_notices": [index("user", "channel", "at")],
    **dict.fromkeys(("replicas", "unsettled", "counters"), ()),
}
"""The indexes of each collection. Migrations create collections, because transactions cannot."""


async def _check_notices(database: Database) -> None:
    """Check all waiting notices once. Digests of the previous version are sent early."""
    for channel in CHANNELS:
        free, expired = {f"claimed.{channel}": None}, {f"claimed.{channel}": 1}
        await database["alarm_notifications"].update_many(free, {"$set": expired})


async def _drop_due_index(database: Database) -> None:
    """Deliver notices of the previous version, and drop the index that only it uses."""
    await _check_notices(database)
    await drop_present(database["alarm_notices"], "due_1")


async def _drop_version_01_run_indexes(database: Database) -> None:
    for name in ("flow_1__id_-1", "startedAt_1"):
        await drop_present(database["runs"], name)


MIGRATIONS = (
    Migration(
        4000, "collections and indexes", partial(create_collections, collections=COLLECTIONS)
    ),
    Migration(3231, "due times of notifications by user and channel", _check_notices),
    Migration(922, "indexes of version 0.1 for runs", _drop_version_01_run_indexes, contract=True),
    Migration(3232, "index of version 0.1 for notices", _drop_due_index, contract=True),
)
"""Migrations by number. Increase the first number when `COLLECTIONS` changes, to run it again."""
