"""Indexes of the service's database, in the order they came."""

from typing import Any

from pymongo import ASCENDING, IndexModel

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, create_missing, drop_present
from services.device.devices import MIGRATIONS as DEVICES
from services.device.members.migrations import MIGRATIONS as ENTITIES
from services.device.products import MIGRATIONS as PRODUCTS
from services.device.reports.store import EVENTS, SEEN
from services.device.retention.migrations import MIGRATIONS as RETENTION

SEEN_FOR = 86_400
"""Seconds for which an uplink that left no document is remembered."""


async def _reports(database: Database) -> None:
    """Create what is written in transactions, where no collection must be created."""
    await create_missing(database, EVENTS, clusteredIndex={"key": {"_id": 1}, "unique": True})
    for name in ("outbox", "ledger", "latest", "commands", "profiles", SEEN):
        await create_missing(database, name)
    await database[SEEN].create_index([("at", ASCENDING)], expireAfterSeconds=SEEN_FOR)
    await database["outbox"].create_index([("at", ASCENDING)])


async def _commands(database: Database) -> None:
    await database["commands"].create_indexes(
        [
            IndexModel([("status", ASCENDING), ("nextSendAt", ASCENDING)]),
            IndexModel([("thingId", ASCENDING), ("status", ASCENDING), ("_id", ASCENDING)]),
        ]
    )


async def _presence(database: Database) -> None:
    await database["devices"].create_index([("connectStatus", ASCENDING), ("httpUntil", ASCENDING)])


async def _connections(database: Database) -> None:
    """Who is ONLINE gets a connection to a server that never answers, which ends as such do.

    So whoever is not connected any more becomes OFFLINE, and nobody else does meanwhile.
    """
    for name in ("connections", "presence_turn"):
        await create_missing(database, name)
    await database["connections"].create_index([("user", ASCENDING)], name="user")
    await database["devices"].create_index([("httpUntil", ASCENDING)], name="silent", sparse=True)
    online: list[dict[str, Any]] = [
        {"$match": {"connectStatus": "ONLINE"}},
        {"$project": {"_id": {"server": "before", "cid": "$_id"}, "user": "$snKey"}},
        {"$merge": {"into": "connections"}},
    ]
    await (await database["devices"].aggregate(online)).to_list(None)
    await drop_present(database["devices"], "connectStatus_1_httpUntil_1")


async def _turns(database: Database) -> None:
    await create_missing(database, "command_turns")


async def _integrations(database: Database) -> None:
    await database["devices"].create_index([("integration", 1), ("_id", 1)], name="integration")


MIGRATIONS = [
    Migration(1, "collections of reports and the outbox", _reports),
    Migration(2, "indexes of commands", _commands),
    Migration(3, "index of connection states", _presence),
    Migration(4, "turns of commands", _turns),
    Migration(5, "connections, and who has fallen silent over HTTP", _connections),
    *PRODUCTS,
    *DEVICES,
    *ENTITIES,
    Migration(500, "devices by integration", _integrations),
    *RETENTION,
]
