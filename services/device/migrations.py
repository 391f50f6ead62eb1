"""Migrations of the service's database."""

import logging

from pymongo import ASCENDING, IndexModel

from libs.common.store.migrations import CLUSTERED, Migration, create_missing, drop_present
from libs.common.store.mongo import Database, Document
from services.device.commands.model import OPEN
from services.device.commands.schedule import DUE_INDEX
from services.device.commands.write_only import WIPE_INDEX
from services.device.lorawan.frame_store import FRAMES
from services.device.lorawan.gaps import GAPS
from services.device.lorawan.redecode_service import JOB_DAYS, REDECODES
from services.device.members.migrations import MIGRATIONS as ENTITIES
from services.device.telemetry.batch_store import SEEN
from services.device.telemetry.device_events import EVENTS
from services.device.telemetry.folded_values import LARGE, MAX_BYTES
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.value_reader import PARTS
from services.device.things.deleted_things import REMOVED
from services.device.things.migrations import DEVICE_MIGRATIONS as DEVICES
from services.device.things.migrations import PRODUCT_MIGRATIONS as PRODUCTS

log = logging.getLogger(__name__)

SEEN_FOR = 86_400
"""Seconds that an uplink without any other document is recorded."""
TURNS_KEPT = 3600
"""Seconds after which a turn is released."""


async def _reports(database: Database) -> None:
    """Create the collections that transactions write, which cannot create them."""
    await create_missing(database, EVENTS, **CLUSTERED)
    for name in ("outbox", "ledger", "latest", "commands", "profiles", SEEN):
        await create_missing(database, name)
    await database[SEEN].create_index([("at", ASCENDING)], expireAfterSeconds=SEEN_FOR)
    await database["outbox"].create_index([("at", ASCENDING)])


async def _presence(database: Database) -> None:
    await database["devices"].create_index([("connectStatus", ASCENDING), ("httpUntil", ASCENDING)])


async def _connections(database: Database) -> None:
    """Add connections for ONLINE devices to a server that never answers.

    The presence watch then ends them like those of other silent servers.
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
    """Drop the index that version 0.1 uses to find silent devices."""
    await drop_present(database["devices"], "connectStatus_1_httpUntil_1")


async def _add_expiry(database: Database) -> None:
    await create_missing(database, REMOVED)
    await database[REMOVED].create_index("at")
    turns = database["command_turns"]
    await turns.delete_many({"at": {"$exists": False}})  # running transactions are retried
    await turns.create_index("at", expireAfterSeconds=TURNS_KEPT)
    await _delete_orphaned_profiles(database)


async def _delete_orphaned_profiles(database: Database) -> None:
    """Delete profiles of devices that were deleted before this version."""
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
    await database[REDECODES].create_index("at", expireAfterSeconds=JOB_DAYS * 86_400)


async def _redecodes_by_tenant(database: Database) -> None:
    """Index the tenants with running re-decode jobs, and their turns."""
    await database[REDECODES].create_index(
        [("_id.tenant", ASCENDING), ("turn", ASCENDING)],
        name="running",
        partialFilterExpression={"state": "RUNNING"},
    )


async def _gaps(database: Database) -> None:
    await create_missing(database, GAPS, **CLUSTERED)
    await database[GAPS].create_index("at", expireAfterSeconds=0)


async def _events_by_kind(database: Database) -> None:
    """Index the newest event of a kind, without its device's other events."""
    await database[EVENTS].create_index([("e", ASCENDING), ("_id", ASCENDING)], name="kind")


async def _make_parts(database: Database) -> None:
    await create_missing(database, PARTS)


async def divide_values(database: Database) -> None:
    """Move large latest values, and those of things with many, to separate documents.

    The log lists the things that exceed the present limit: they keep their values.
    """
    large = {"$expr": {"$gt": [{"$bsonSize": "$v"}, LARGE]}}
    async for one in database["latest"].find(large, {"_id": 1}):
        size = await LatestValues(database).split(one["_id"])
        if size > MAX_BYTES:
            text = "latest values of device %d have %d bytes, above the limit of %d"
            log.warning(text, one["_id"], size, MAX_BYTES)


REPORT_MIGRATIONS = [
    Migration(1, "collections of reports and the outbox", _reports),
    Migration(3, "index of connection states", _presence),
    Migration(5, "connections, and who has fallen silent over HTTP", _connections),
    Migration(600, "an end for turns, profiles and things that are gone", _add_expiry),
    Migration(601, "the index of version 0.1 for presence", _drop_presence, contract=True),
    Migration(602, "frames", _frames),
    Migration(610, "an end for redecodings", _redecodes_end),
    Migration(3207, "turns of redecodings by tenant", _redecodes_by_tenant),
    Migration(1801, "gaps between frames", _gaps),
    Migration(3161, "index of events by their kind", _events_by_kind),
    Migration(3201, "parts of latest values", _make_parts),
    Migration(3202, "large latest values in documents of their own", divide_values, contract=True),
]


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
    """Index the commands of a device in the order of the API."""
    order = [("thingId", ASCENDING), ("createdAt", ASCENDING), ("_id", ASCENDING)]
    await database["commands"].create_indexes([IndexModel(order)])


async def _awaited(database: Database) -> None:
    """Index open commands that network servers deliver, by device."""
    await database["commands"].create_indexes([IndexModel([("awaited", ASCENDING)], sparse=True)])


async def _write_only(database: Database) -> None:
    """Index commands and TSLs with write-only values."""
    await database["commands"].create_indexes([IndexModel([("wipeAt", ASCENDING)], sparse=True)])
    await database["tsls"].create_indexes([IndexModel([("conceals", ASCENDING)])])


async def _erase_again(database: Database) -> None:
    """Process all things again, as old processes stored write-only values meanwhile."""
    for name in ("devices", "things"):
        await database[name].update_many({"erased": {"$exists": True}}, {"$unset": {"erased": ""}})


async def _by_tenant(database: Database) -> None:
    """Index the tenants with due commands, and the due commands of a tenant."""
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


async def _drop_tenantless(database: Database) -> None:
    """Drop the indexes that version 0.1 uses for due commands of all tenants."""
    for name in ("status_1_nextSendAt_1", "wipeAt_1"):
        await drop_present(database["commands"], name)


COMMAND_MIGRATIONS = [
    Migration(2, "indexes of commands", _commands),
    Migration(4, "turns of commands", _turns),
    Migration(1701, "commands that network servers carry", _awaited),
    Migration(3101, "commands and TSLs with write-only values", _write_only),
    Migration(
        3102, "write-only values of the version before are erased", _erase_again, contract=True
    ),
    Migration(3208, "indexes of due commands by tenant", _by_tenant),
    Migration(3209, "indexes of due commands of all tenants", _drop_tenantless, contract=True),
    Migration(911, "commands of a device in their order", _newest),
]


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


ALARM_MIGRATIONS = [
    Migration(800, "alarms, their rules and states", _make_alarms),
    Migration(801, "alarms that flows raise", _let_flows_raise),
    Migration(3211, "states that are due, by tenant", _find_due_by_tenant),
]


BY_GROUP = ("tenant", "group", "_id", "integration")
"""An index that answers who may see the devices of a group, and how many it has."""


async def _make_groups(database: Database) -> None:
    await create_missing(database, "device_groups")
    named = {"name": {"$type": "string"}}  # one that is being deleted has none
    await database["device_groups"].create_index(
        [("tenant", 1), ("name", 1)], name="name", unique=True, partialFilterExpression=named
    )
    await database["devices"].create_index([(field, 1) for field in BY_GROUP], name="group")


GROUP_MIGRATIONS = [Migration(700, "groups of devices", _make_groups)]


SECONDS = 7 * 24 * 3600
"""Seconds that imports are kept."""


async def _make_imports(database: Database) -> None:
    for name in ("imports", "import_rows"):
        await create_missing(database, name)
        await database[name].create_index("createdAt", name="age", expireAfterSeconds=SECONDS)
    await database["imports"].create_index([("state", 1), ("_id", 1)], name="state")
    await database["imports"].create_index([("tenant", 1), ("_id", -1)], name="tenant")
    await database["import_rows"].create_index([("import", 1), ("row", 1)], name="row", unique=True)
    await database["import_rows"].create_index(
        [("import", 1), ("outcome", 1), ("row", 1)], name="outcome"
    )


IMPORT_MIGRATIONS = [Migration(900, "imports of devices", _make_imports)]


MIGRATIONS = sorted(
    [
        *PRODUCTS,
        *DEVICES,
        *GROUP_MIGRATIONS,
        *ENTITIES,
        *REPORT_MIGRATIONS,
        *COMMAND_MIGRATIONS,
        *IMPORT_MIGRATIONS,
        *ALARM_MIGRATIONS,
    ],
    key=lambda migration: migration.number,
)
