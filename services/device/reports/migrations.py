"""Indexes of reports, presence and retention, in the order they came."""

import logging

from pymongo import ASCENDING

from libs.common.store.migrations import Migration
from libs.common.store.mongo import (
    CLUSTERED,
    Database,
    Document,
    create_missing,
    drop_present,
)
from services.device.lorawan.frame_store import FRAMES
from services.device.lorawan.gaps import GAPS
from services.device.lorawan.redecode_service import KEPT, REDECODES
from services.device.telemetry.batch_store import SEEN
from services.device.telemetry.device_events import EVENTS
from services.device.telemetry.folded_values import LARGE, MOST
from services.device.telemetry.latest_values import PARTS, LatestValues
from services.device.things.deleted_things import REMOVED

log = logging.getLogger(__name__)

SEEN_FOR = 86_400
"""Seconds for which an uplink that left no document is remembered."""
TURNS_KEPT = 3600
"""Seconds after which a turn that was taken stands in nobody's way."""


async def _reports(database: Database) -> None:
    """Create what is written in transactions, where no collection must be created."""
    await create_missing(database, EVENTS, **CLUSTERED)
    for name in ("outbox", "ledger", "latest", "commands", "profiles", SEEN):
        await create_missing(database, name)
    await database[SEEN].create_index([("at", ASCENDING)], expireAfterSeconds=SEEN_FOR)
    await database["outbox"].create_index([("at", ASCENDING)])


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
    online: list[Document] = [
        {"$match": {"connectStatus": "ONLINE"}},
        {"$project": {"_id": {"server": "before", "cid": "$_id"}, "user": "$snKey"}},
        {"$merge": {"into": "connections"}},
    ]
    await (await database["devices"].aggregate(online)).to_list(None)


async def _drop_presence(database: Database) -> None:
    """Version 0.1 looks by it for devices that have fallen silent."""
    await drop_present(database["devices"], "connectStatus_1_httpUntil_1")


async def _ends(database: Database) -> None:
    await create_missing(database, REMOVED)
    await database[REMOVED].create_index("at")
    turns = database["command_turns"]
    await turns.delete_many({"at": {"$exists": False}})  # whoever is in one tries again
    await turns.create_index("at", expireAfterSeconds=TURNS_KEPT)
    await _remove_profiles_of_nobody(database)


async def _remove_profiles_of_nobody(database: Database) -> None:
    """Profiles of devices that were deleted before this version."""
    of = {"from": "devices", "localField": "_id", "foreignField": "_id", "as": "device"}
    left = await database["profiles"].aggregate(
        [{"$lookup": of}, {"$match": {"device": []}}, {"$project": {"_id": 1}}]
    )
    async for row in left:
        await database["profiles"].delete_one(row)


async def _frames(database: Database) -> None:
    await create_missing(database, FRAMES, **CLUSTERED)
    await database[FRAMES].create_index("i", name="identity", unique=True)
    await database[FRAMES].create_index("at", expireAfterSeconds=0)
    await create_missing(database, REDECODES)


async def _redecodes_end(database: Database) -> None:
    await database[REDECODES].create_index("at", expireAfterSeconds=KEPT * 86_400)


async def _redecodes_by_tenant(database: Database) -> None:
    """Find the tenants with redecodings under way, and the one whose turn is next."""
    await database[REDECODES].create_index(
        [("_id.tenant", ASCENDING), ("turn", ASCENDING)],
        name="running",
        partialFilterExpression={"state": "RUNNING"},
    )


async def _gaps(database: Database) -> None:
    await create_missing(database, GAPS, **CLUSTERED)
    await database[GAPS].create_index("at", expireAfterSeconds=0)


async def _events_by_kind(database: Database) -> None:
    """Find the newest event of a kind without reading all other events of its device."""
    await database[EVENTS].create_index([("e", ASCENDING), ("_id", ASCENDING)], name="kind")


async def _make_parts(database: Database) -> None:
    await create_missing(database, PARTS)


async def divide_values(database: Database) -> None:
    """Move large latest values, and those of things with many, to documents of their own.

    The log lists the things that have more than a thing may have now: they keep their values.
    """
    large = {"$expr": {"$gt": [{"$bsonSize": "$v"}, LARGE]}}
    async for one in database["latest"].find(large, {"_id": 1}):
        size = await LatestValues(database).divide(one["_id"])
        if size > MOST:
            text = "latest values of device %d have %d bytes, and it can add none beyond %d"
            log.warning(text, one["_id"], size, MOST)


MIGRATIONS = [
    Migration(1, "collections of reports and the outbox", _reports),
    Migration(3, "index of connection states", _presence),
    Migration(5, "connections, and who has fallen silent over HTTP", _connections),
    Migration(600, "an end for turns, profiles and things that are gone", _ends),
    Migration(601, "the index of version 0.1 for presence", _drop_presence, contract=True),
    Migration(602, "frames", _frames),
    Migration(610, "an end for redecodings", _redecodes_end),
    Migration(3207, "turns of redecodings by tenant", _redecodes_by_tenant),
    Migration(1801, "gaps between frames", _gaps),
    Migration(3161, "index of events by their kind", _events_by_kind),
    Migration(3201, "parts of latest values", _make_parts),
    Migration(3202, "large latest values in documents of their own", divide_values, contract=True),
]
