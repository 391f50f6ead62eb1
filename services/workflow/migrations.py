"""Migrations of `workflow`'s database."""

from libs.common.store.migrations import Migration, create_missing
from libs.common.store.mongo import Database
from services.workflow.credentials.store import create_indexes as create_credential_indexes
from services.workflow.flows.store import create_indexes as create_flow_indexes
from services.workflow.notifications.store import (
    add_due_times,
    create_collections,
    drop_due_index,
)
from services.workflow.runs.store import create_indexes as create_run_indexes
from services.workflow.runs.store import drop_whole, index_ended
from services.workflow.triggers.deployed_flows import create_changes
from services.workflow.triggers.hooks import create_address_index
from services.workflow.triggers.hooks import create_indexes as create_hook_indexes
from services.workflow.triggers.timers import create_indexes as create_timer_indexes
from services.workflow.vault import create_indexes as create_secret_indexes

COLLECTIONS = (
    "flows",
    "flow_versions",
    "deployments",
    "timers",
    "hooks",
    "runs",
    "replicas",
    "outbox",
    "counters",
)


async def _first(database: Database) -> None:
    for name in COLLECTIONS:
        await create_missing(database, name)
    await create_flow_indexes(database)
    await create_run_indexes(database)
    await create_timer_indexes(database)
    await create_hook_indexes(database)
    await database["deployments"].create_index("component")
    await database["outbox"].create_index("at")


async def _second(database: Database) -> None:
    await create_missing(database, "flow_secrets")
    await create_secret_indexes(database)
    await create_missing(database, "unsettled")


async def _credentials(database: Database) -> None:
    await create_missing(database, "credentials")
    await create_credential_indexes(database)
    await create_address_index(database)


MIGRATIONS = (
    Migration(1, "flows, runs, outbox", _first),
    Migration(2, "secrets of flows, services that are not settled", _second),
    Migration(3, "credentials of tenants, addresses of flows", _credentials),
    Migration(800, "notifications of alarms", create_collections),
    Migration(920, "changes of deployments", create_changes),
    Migration(921, "indexes of runs that have ended", index_ended),
    Migration(922, "indexes of version 0.1 for runs", drop_whole, contract=True),
    Migration(3231, "due times of notifications by user and channel", add_due_times),
    Migration(3232, "index of version 0.1 for notices", drop_due_index, contract=True),
)
