"""Migrations of `workflow`'s database."""

from functools import partial

from libs.common.store.migrations import (
    Migration,
    build_index_model,
    create_collections,
    drop_index_if_present,
)
from libs.common.store.mongo import Database
from services.workflow.notifications.store import CHANNELS
from services.workflow.runs.store import ENDED_RUNS_FILTER
from services.workflow.triggers.deployed_flows import CHANGES_COLLECTION, CHANGES_RETENTION_SECONDS

INDEXES_BY_COLLECTION = {
    "flows": [build_index_model("tenant", "-_id")],
    "flow_versions": [build_index_model("_id.flow")],
    "deployments": [build_index_model("component")],
    CHANGES_COLLECTION: [build_index_model("at", expireAfterSeconds=CHANGES_RETENTION_SECONDS)],
    "timers": [build_index_model("due")],
    "hooks": [
        build_index_model("token", unique=True),
        build_index_model("tenant", "method", "shape"),
    ],
    "runs": [
        build_index_model("flow", "key", unique=True),
        build_index_model("replica", where={"status": "RUNNING"}),
        build_index_model("flow", "-_id", name="log", where=ENDED_RUNS_FILTER),
        build_index_model("startedAt", name="age", where=ENDED_RUNS_FILTER),
    ],
    "outbox": [build_index_model("at")],
    "flow_secrets": [build_index_model("tenant", "flows")],
    "credentials": [build_index_model("tenant", "type", "accessKey", unique=True)],
    "alarm_notifications": [
        build_index_model("tenant", "settings.enabled"),
        *(build_index_model(f"due.{channel}", sparse=True) for channel in CHANNELS),
        *(build_index_model(f"claimed.{channel}", sparse=True) for channel in CHANNELS),
    ],
    "alarm_notices": [build_index_model("user", "channel", "at")],
    **dict.fromkeys(("replicas", "unsettled", "counters"), ()),
}
"""The indexes of each collection. Migrations create collections, because transactions cannot."""


async def _check_notices(database: Database) -> None:
    """Let senders check the notices of each user and channel once.

    An expired claim causes the check. Digests of the previous version are sent early.
    """
    for channel in CHANNELS:
        free, expired = {f"claimed.{channel}": None}, {f"claimed.{channel}": 1}
        await database["alarm_notifications"].update_many(free, {"$set": expired})


async def _drop_due_index(database: Database) -> None:
    """Deliver notices of the previous version, and drop the index of that version."""
    await _check_notices(database)
    await drop_index_if_present(database["alarm_notices"], "due_1")


async def _drop_version_01_run_indexes(database: Database) -> None:
    for name in ("flow_1__id_-1", "startedAt_1"):
        await drop_index_if_present(database["runs"], name)


MIGRATIONS = (
    Migration(
        4000,
        "collections and indexes",
        partial(create_collections, collections=INDEXES_BY_COLLECTION),
    ),
    Migration(3231, "due times of notifications by user and channel", _check_notices),
    Migration(922, "indexes of version 0.1 for runs", _drop_version_01_run_indexes, contract=True),
    Migration(3232, "index of version 0.1 for notices", _drop_due_index, contract=True),
)
"""Migrations by number. Increase the first number when `INDEXES_BY_COLLECTION` changes, to run it
again."""
