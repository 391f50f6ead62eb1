"""Indexes of commands, in the order they came."""

from pymongo import ASCENDING, IndexModel

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, create_missing, drop_present
from services.device.commands.model import OPEN
from services.device.commands.store import DUE_INDEX
from services.device.commands.write_only import WIPE_INDEX


async def _commands(database: Database) -> None:
    await database["commands"].create_indexes(
        [
            IndexModel([("status", ASCENDING), ("nextSendAt", ASCENDING)]),
            IndexModel([("thingId", ASCENDING), ("status", ASCENDING), ("_id", ASCENDING)]),
        ]
    )


async def _turns(database: Database) -> None:
    await create_missing(database, "command_turns")


async def _newest(database: Database) -> None:
    """The order in which people read a device's commands."""
    order = [("thingId", ASCENDING), ("createdAt", ASCENDING), ("_id", ASCENDING)]
    await database["commands"].create_indexes([IndexModel(order)])


async def _awaited(database: Database) -> None:
    """The devices whose commands network servers carry, while they are open."""
    await database["commands"].create_indexes([IndexModel([("awaited", ASCENDING)], sparse=True)])


async def _write_only(database: Database) -> None:
    """What must be wiped of write-only values, and the TSLs that have some."""
    await database["commands"].create_indexes([IndexModel([("wipeAt", ASCENDING)], sparse=True)])
    await database["tsls"].create_indexes([IndexModel([("conceals", ASCENDING)])])


async def _erase_again(database: Database) -> None:
    """Let all things be looked at once more: old processes stored write-only values meanwhile."""
    for name in ("devices", "things"):
        await database[name].update_many({"erased": {"$exists": True}}, {"$unset": {"erased": ""}})


async def _by_tenant(database: Database) -> None:
    """Find the tenants with commands that are due, and the commands of one."""
    keys = [("tenant", ASCENDING), ("status", ASCENDING), ("nextSendAt", ASCENDING)]
    is_open, to_wipe = {"status": {"$in": OPEN}}, {"wipeAt": {"$exists": True}}
    await database["commands"].create_indexes(
        [
            IndexModel(keys, name=DUE_INDEX, partialFilterExpression=is_open),
            IndexModel(
                [("tenant", ASCENDING), ("wipeAt", ASCENDING)],
                name=WIPE_INDEX,
                partialFilterExpression=to_wipe,
            ),
        ]
    )


async def _drop_of_all(database: Database) -> None:
    """Drop the indexes by which version 0.1 looks for due commands of all tenants."""
    for name in ("status_1_nextSendAt_1", "wipeAt_1"):
        await drop_present(database["commands"], name)


MIGRATIONS = [
    Migration(2, "indexes of commands", _commands),
    Migration(4, "turns of commands", _turns),
    Migration(1701, "commands that network servers carry", _awaited),
    Migration(3101, "commands and TSLs with write-only values", _write_only),
    Migration(
        3102, "write-only values of the version before are erased", _erase_again, contract=True
    ),
    Migration(3208, "indexes of due commands by tenant", _by_tenant),
    Migration(3209, "indexes of due commands of all tenants", _drop_of_all, contract=True),
    Migration(911, "commands of a device in their order", _newest),
]
