"""Migrations of the service's database: its collections and indexes, and changes of stored data."""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from pymongo import UpdateOne

from libs.common.store.migrations import (
    CLUSTERED_OPTIONS,
    Migration,
    build_index_model,
    create_collections,
    create_missing_collection,
    drop_index_if_present,
)
from libs.common.store.mongo import Database, Document
from libs.common.things import DIRECT_INTEGRATION, SYSTEM_INTEGRATION
from libs.common.tsl import ParamSpec, TslDocument, iterate_entries, keys_from_ids
from services.device.commands.model import OPEN_STATES
from services.device.commands.schedule import DUE_INDEX
from services.device.commands.write_only import WIPE_INDEX
from services.device.lorawan.frame_store import FRAMES_COLLECTION
from services.device.lorawan.gaps import GAPS_COLLECTION
from services.device.lorawan.redecode_service import FINISHED_JOB_DAYS, REDECODES_COLLECTION
from services.device.members.entity import stored_tsl_fields
from services.device.telemetry.batch_store import SEEN_COLLECTION
from services.device.telemetry.device_events import EVENTS_COLLECTION
from services.device.telemetry.folded_values import LARGE_VALUE_BYTES, MAX_TOTAL_BYTES
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.value_reader import PARTS_COLLECTION
from services.device.things.deleted_things import REMOVED_COLLECTION
from services.device.things.device_search import NGRAM_INDEX, extract_ngrams
from services.device.things.product_store import HAS_PREFIXES

log = logging.getLogger(__name__)

DAY_SECONDS = 86_400
UPLINK_RECORD_SECONDS = DAY_SECONDS
"""Seconds that `SEEN_COLLECTION` keeps the record of an uplink that no other document records."""
COMMAND_LOCK_SECONDS = 3600
"""Seconds from its last use after which the lock document of a thing's commands is deleted."""
IMPORT_RETENTION_SECONDS = 7 * DAY_SECONDS
"""Seconds that imports are kept."""
DEVICES_PER_BATCH = 2_000
"""Devices that a migration changes at a time."""

APPLICATION_INDEX_FIELDS = ("tenant", "application.applicationId")
MODEL_INDEX_FIELDS = ("tenant", "model", "tslVersion", "shape")

GROUP_HAS_NAME = {"name": {"$type": "string"}}
"""Filter of groups that are not being deleted: only these have a name."""
HAS_LOCATION = {"location.latitude": {"$exists": True}}
OPEN_FLOW_ALARM = {"open": True, "key": {"$exists": True}}
UNINDEXED_COLLECTIONS = (
    *("product_usage", "template_libraries", "serials", "members", "ledger", "latest", "profiles"),
    *(PARTS_COLLECTION, "presence_turn", "alarm_steps"),
)

INDEXES_BY_COLLECTION = {
    "products": [
        build_index_model("_id.tenant", "_id.model", name="tenant_model"),
        build_index_model(
            "_id.tenant", "snPrefixes", name="tenant_prefix", unique=True, where=HAS_PREFIXES
        ),
        build_index_model(
            "locationProperty", name="place", where={"locationProperty": {"$type": "string"}}
        ),
        build_index_model("healing.on", name="healing", sparse=True),
    ],
    "tsls": [
        build_index_model("_id.tenant", "_id.model", "_id.version", name="tenant_model_version"),
        build_index_model("conceals"),
    ],
    "codecs": [build_index_model("_id.tenant", "_id.model", name="tenant_model")],
    "rps": [build_index_model("tenant", "applicationId", "_id", name="application")],
    "devices": [
        build_index_model("snKey", name="sn", unique=True),
        build_index_model("devEUI", name="dev_eui", sparse=True),
        build_index_model("imei", name="imei", sparse=True),
        build_index_model("integration", "_id", name="integration"),
        build_index_model("shape", name="shape", sparse=True),
        build_index_model("httpUntil", name="silent", sparse=True),
        # searches of applications
        build_index_model(*APPLICATION_INDEX_FIELDS, "_id", name="application"),
        build_index_model(*APPLICATION_INDEX_FIELDS, "name", "_id", name="application_name"),
        build_index_model(*APPLICATION_INDEX_FIELDS, "snKey", "_id", name="application_sn"),
        build_index_model(
            *APPLICATION_INDEX_FIELDS, "connectStatus", "_id", name="application_connect_status"
        ),
        build_index_model("grams", *APPLICATION_INDEX_FIELDS, "_id", name=NGRAM_INDEX),
        # orders and filters of consoles
        build_index_model("tenant", "_id", "integration", name="console_id"),
        build_index_model("tenant", "integration", "identifier", "_id", name="console_key"),
        build_index_model("tenant", "name", "_id", name="console_name"),
        build_index_model("tenant", "createdAt", "_id", name="console_created"),
        build_index_model("tenant", "connectStatus", "_id", name="fleet_status"),
        build_index_model("tenant", "model", "_id", name="fleet_model"),
        build_index_model("tenant", "tag", "_id", name="fleet_tag"),
        build_index_model("tenant", "updatedAt", "_id", name="fleet_updated"),
        build_index_model("tenant", "identifier", "_id", name="fleet_identifier"),
        build_index_model(
            "tenant", "location.latitude", "location.longitude", name="place", where=HAS_LOCATION
        ),
        # answers who may see the devices of a group, and how many it has
        build_index_model("tenant", "group", "_id", "integration", name="group"),
        # counts by model and keyword searches read only this index
        build_index_model(
            *MODEL_INDEX_FIELDS, "entityNames", "integration", "snKey", "name", name="members"
        ),
    ],
    "device_groups": [
        build_index_model("tenant", "name", name="name", unique=True, where=GROUP_HAS_NAME)
    ],
    "shapes": [build_index_model("parent", name="parent", sparse=True)],
    "things": [build_index_model("tenant", "integration", "identifier", name="thing", unique=True)],
    "entity_tags": [build_index_model("tenant", "name", name="name", unique=True)],
    "tagged_entities": [build_index_model("tenant", "tags", name="tag")],
    # finds an event without the device's other kinds
    EVENTS_COLLECTION: [build_index_model("e", "_id", name="kind")],
    SEEN_COLLECTION: [build_index_model("at", expireAfterSeconds=UPLINK_RECORD_SECONDS)],
    "outbox": [build_index_model("at")],
    "connections": [build_index_model("user", name="user")],
    REMOVED_COLLECTION: [build_index_model("at")],
    FRAMES_COLLECTION: [
        build_index_model("i", name="identity", unique=True),
        build_index_model("at", expireAfterSeconds=0),
    ],
    GAPS_COLLECTION: [build_index_model("at", expireAfterSeconds=0)],
    REDECODES_COLLECTION: [
        build_index_model("at", expireAfterSeconds=FINISHED_JOB_DAYS * DAY_SECONDS),
        build_index_model("_id.tenant", "turn", name="running", where={"state": "RUNNING"}),
    ],
    "commands": [
        build_index_model("thingId", "status", "_id"),
        build_index_model("thingId", "createdAt", "_id"),
        build_index_model("awaited", sparse=True),
        build_index_model(
            "tenant", "status", "nextSendAt", name=DUE_INDEX, where={"status": {"$in": OPEN_STATES}}
        ),
        build_index_model("tenant", "wipeAt", name=WIPE_INDEX, where={"wipeAt": {"$exists": True}}),
    ],
    "command_turns": [build_index_model("at", expireAfterSeconds=COMMAND_LOCK_SECONDS)],
    "alarm_rules": [
        build_index_model("tenant", "device", "_id", name="device"),
        build_index_model("tenant", "product", "_id", name="product"),
        build_index_model("todo", name="todo", sparse=True),
        build_index_model("changed", name="changed"),
    ],
    "alarm_states": [
        build_index_model("changed", name="changed"),
        build_index_model("rule", "generation", name="rule"),
        build_index_model("device", name="device"),
        build_index_model("tenant", "due", name="tenant_due", where={"due": {"$exists": True}}),
    ],
    "alarms": [
        build_index_model("tenant", "raisedAt", "_id", name="time"),
        build_index_model("tenant", "device", "raisedAt", "_id", name="device"),
        build_index_model("tenant", "rule", "raisedAt", "_id", name="rule"),
        build_index_model("tenant", "open", "raisedAt", "_id", name="open"),
        build_index_model("device", name="gone"),
        build_index_model(
            "tenant", "device", "key", name="key", unique=True, where=OPEN_FLOW_ALARM
        ),
    ],
    "imports": [
        build_index_model("createdAt", name="age", expireAfterSeconds=IMPORT_RETENTION_SECONDS),
        build_index_model("state", "_id", name="state"),
        build_index_model("tenant", "-_id", name="tenant"),
    ],
    "import_rows": [
        build_index_model("createdAt", name="age", expireAfterSeconds=IMPORT_RETENTION_SECONDS),
        build_index_model("import", "row", name="row", unique=True),
        build_index_model("import", "outcome", "row", name="outcome"),
    ],
    **dict.fromkeys(UNINDEXED_COLLECTIONS, ()),
}
"""The indexes of each collection. Migrations also create the collections without indexes, because
transactions cannot create a collection."""


async def _create_collections(database: Database) -> None:
    for name in (EVENTS_COLLECTION, FRAMES_COLLECTION, GAPS_COLLECTION):
        await create_missing_collection(database, name, **CLUSTERED_OPTIONS)
    await create_collections(database, INDEXES_BY_COLLECTION)


def _build_index_drop(collection: str, *indexes: str) -> Callable[[Database], Awaitable[None]]:
    async def drop_indexes(database: Database) -> None:
        for name in indexes:
            await drop_index_if_present(database[collection], name)

    return drop_indexes


async def _add_connections(database: Database) -> None:
    """Add a connection of each ONLINE device to a server `before` that does not exist.

    The presence watch ends these connections like those of a server that does not answer.
    """
    online: list[Document] = [
        {"$match": {"connectStatus": "ONLINE"}},
        {"$project": {"_id": {"server": "before", "cid": "$_id"}, "user": "$snKey"}},
        {"$merge": {"into": "connections"}},
    ]
    await (await database["devices"].aggregate(online)).to_list(None)


async def _delete_orphans(database: Database) -> None:
    """Delete profiles of deleted devices, and lock documents of commands that have no time `at`."""
    turns = database["command_turns"]
    await turns.delete_many({"at": {"$exists": False}})  # running transactions are retried
    of = {"from": "devices", "localField": "_id", "foreignField": "_id", "as": "device"}
    orphans = await database["profiles"].aggregate(
        [{"$lookup": of}, {"$match": {"device": []}}, {"$project": {"_id": 1}}]
    )
    async for row in orphans:
        await database["profiles"].delete_one(row)


async def _store_ngrams(database: Database) -> None:
    """Store the ngrams of devices that were added before text search existed, by ascending id."""
    devices, after = database["devices"], -1
    while True:
        without = {"_id": {"$gt": after}, "grams": None}
        documents = await devices.find(
            without, {"name": 1, "snKey": 1}, sort=[("_id", 1)], limit=DEVICES_PER_BATCH
        ).to_list()
        if not documents:
            break
        await devices.bulk_write(
            [
                UpdateOne(
                    {"_id": device["_id"], "name": device["name"]},
                    {"$set": {"grams": extract_ngrams(device["name"], device["snKey"])}},
                )
                for device in documents
            ],
            ordered=False,
        )
        after = documents[-1]["_id"]


async def _mark_released_serials(database: Database) -> None:
    """Mark the SNs of all unassigned devices: no application and no users own these devices."""
    nobodys = {"application": None, "userId": None, "integration": DIRECT_INTEGRATION}
    cursor = database["devices"].find(
        nobodys, {"snKey": 1, "tenant": 1}, batch_size=DEVICES_PER_BATCH
    )
    async for device in cursor:
        change = {"$set": {"holder": "nobody", "behind": device["tenant"]}}
        await database["serials"].update_one({"_id": device["snKey"], "holder": "device"}, change)


async def _complete_version_0_1(database: Database) -> None:
    """Complete devices that processes of version 0.1 added or removed during the upgrade."""
    await _store_ngrams(database)
    await _mark_released_serials(database)


async def _store_fraction_digits(database: Database) -> None:
    """Copy `fraction_digits` of custom entities to `fractionDigits` in their TSLs."""
    query = {
        "integration": SYSTEM_INTEGRATION,
        "members.attribute.fraction_digits": {"$exists": True},
    }
    async for thing in database["things"].find(query):
        document = msgspec.json.decode(thing["tsl"], type=TslDocument)
        digits = {
            ".".join(filter(None, (thing["identifier"], member["path"]))): member["attribute"]
            for member in thing["members"]
        }
        params = [output for event in document.events for output in event.outputs]
        params += [parameter for service in document.services for parameter in service.inputs]
        for entry in [*document.properties, *params]:
            attribute = digits.get(entry.id, {})
            entry.data_spec.fraction_digits = attribute.get("fraction_digits")
        change = {"$set": stored_tsl_fields(document)}
        await database["things"].update_one({"_id": thing["_id"], "hash": thing["hash"]}, change)


async def _restore_member_ids(database: Database) -> None:
    """Replace property keys that were ignored on import by member ids.

    Devices use ids until the product is imported again. In the TSLs of products, the `ref` of each
    parameter is also stored in its data specification.
    """
    async for stored in database["tsls"].find({}):
        document = msgspec.json.decode(stored["document"], type=TslDocument)
        plain = keys_from_ids(document)
        content = msgspec.json.encode(_copy_refs_to_specs(plain))
        if content == stored["document"]:
            continue
        change: Document = {"document": content, "hash": hashlib.sha256(content).hexdigest()}
        if plain is not document:
            change["keysIgnored"] = True
        same = {"_id": stored["_id"], "hash": stored["hash"]}
        await database["tsls"].update_one(same, {"$set": change})
    async for thing in database["things"].find({"tsl": {"$exists": True}}):
        document = msgspec.json.decode(thing["tsl"], type=TslDocument)
        plain = keys_from_ids(document)
        if plain is not document:
            same = {"_id": thing["_id"], "hash": thing["hash"]}
            await database["things"].update_one(same, {"$set": stored_tsl_fields(plain)})


def _copy_refs_to_specs(document: TslDocument) -> TslDocument:
    for entry in iterate_entries(document):
        if isinstance(entry, ParamSpec) and entry.ref:
            entry.data_spec.ref = entry.ref
    return document


async def _repeat_erasure(database: Database) -> None:
    """Request another erasure of the write-only values of all things.

    Processes of the previous version have stored such values since the first erasure.
    """
    for name in ("devices", "things"):
        await database[name].update_many({"erased": {"$exists": True}}, {"$unset": {"erased": ""}})


async def split_large_values(database: Database) -> None:
    """Move latest values to parts: large ones, and all of things that exceed `MAX_INLINE_BYTES`.

    Log a warning for each thing whose values exceed `MAX_TOTAL_BYTES`; it keeps its values.
    """
    large = {"$expr": {"$gt": [{"$bsonSize": "$v"}, LARGE_VALUE_BYTES]}}
    async for document in database["latest"].find(large, {"_id": 1}):
        size = await LatestValues(database).move_to_parts_and_measure(document["_id"])
        if size > MAX_TOTAL_BYTES:
            text = "latest values of device %d have %d bytes, above the limit of %d"
            log.warning(text, document["_id"], size, MAX_TOTAL_BYTES)


contracting_migration = partial(Migration, contract=True)

MIGRATIONS = [
    Migration(4000, "collections and indexes", _create_collections),
    Migration(5, "connections of ONLINE devices", _add_connections),
    Migration(202, "grams of names and SNs", _store_ngrams),
    Migration(203, "SNs of devices that are nobody's", _mark_released_serials),
    Migration(412, "decimal places of custom entities", _store_fraction_digits),
    Migration(600, "turns and profiles that are gone", _delete_orphans),
    Migration(3104, "property keys that were ignored", _restore_member_ids),
    contracting_migration(204, "grams and SNs from version 0.1", _complete_version_0_1),
    contracting_migration(
        601,
        "the index of version 0.1 for presence",
        _build_index_drop("devices", "connectStatus_1_httpUntil_1"),
    ),
    contracting_migration(
        712, "the index that counted devices by model", _build_index_drop("devices", "model")
    ),
    contracting_migration(
        3102, "write-only values of the version before are erased", _repeat_erasure
    ),
    contracting_migration(
        3202, "large latest values in documents of their own", split_large_values
    ),
    contracting_migration(
        3209,
        "indexes of due commands of all tenants",
        _build_index_drop("commands", "status_1_nextSendAt_1", "wipeAt_1"),
    ),
]
"""All migrations, each with a unique number.

When `INDEXES_BY_COLLECTION` changes, increase the number of the first migration to run it again.
"""
