"""Indexes of commands, in the order they came."""

from pymongo import ASCENDING, IndexModel

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, create_missing


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


async def _wiped(database: Database) -> None:
    """The closed commands of which nats-server may still keep write-only values."""
    await database["commands"].create_indexes([IndexModel([("wipeAt", ASCENDING)], sparse=True)])


MIGRATIONS = [
    Migration(2, "indexes of commands", _commands),
    Migration(4, "turns of commands", _turns),
    Migration(1701, "commands that network servers carry", _awaited),
    Migration(3101, "closed commands whose write-only values are wiped", _wiped),
    Migration(911, "commands of a device in their order", _newest),
]
