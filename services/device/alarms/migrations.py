"""The collections of alarms, and how they are found."""

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, create_missing, drop_present

COLLECTIONS = ("alarm_rules", "alarm_states", "alarms")
INDEXES = {
    "alarm_rules": {
        "device": ("tenant", "device", "_id"),
        "product": ("tenant", "product", "_id"),
        "todo": ("todo",),
        "changed": ("changed",),
    },
    "alarm_states": {
        "changed": ("changed",),
        "due": ("due",),
        "rule": ("rule", "generation"),
        "device": ("device",),
    },
    "alarms": {
        "time": ("tenant", "raisedAt", "_id"),
        "device": ("tenant", "device", "raisedAt", "_id"),
        "rule": ("tenant", "rule", "raisedAt", "_id"),
        "open": ("tenant", "open", "raisedAt", "_id"),
        "gone": ("device",),
    },
}
SPARSE = {"todo", "due"}


async def _make_alarms(database: Database) -> None:
    for name in COLLECTIONS:
        await create_missing(database, name)
        for index, fields in INDEXES[name].items():
            keys = [(field, 1) for field in fields]
            await database[name].create_index(keys, name=index, sparse=index in SPARSE)


async def _let_flows_raise(database: Database) -> None:
    await create_missing(database, "alarm_steps")
    open_and_keyed = {"open": True, "key": {"$exists": True}}
    await database["alarms"].create_index(
        [("tenant", 1), ("device", 1), ("key", 1)],
        name="key",
        unique=True,
        partialFilterExpression=open_and_keyed,
    )


async def _find_due_by_tenant(database: Database) -> None:
    await drop_present(database["alarm_states"], "due")
    await database["alarm_states"].create_index(
        [("tenant", 1), ("due", 1)],
        name="tenant_due",
        partialFilterExpression={"due": {"$exists": True}},
    )


MIGRATIONS = [
    Migration(800, "alarms, their rules and states", _make_alarms),
    Migration(801, "alarms that flows raise", _let_flows_raise),
    Migration(3211, "states that are due, by tenant", _find_due_by_tenant),
]
