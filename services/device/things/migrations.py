"""Migrations of products, specifications and devices."""

from pymongo import UpdateOne

from libs.common.store.migrations import Migration, create_missing
from libs.common.store.mongo import Database
from libs.common.things import DIRECT
from services.device.things.device_search import INDEX, extract_ngrams

HAS_PREFIXES = {"snPrefixes.0": {"$exists": True}}
"""The filter of the partial index of prefixes; queries repeat it to use the index."""


async def _index_products(database: Database) -> None:
    products, tsls = database["products"], database["tsls"]
    await products.create_index([("_id.tenant", 1), ("_id.model", 1)], name="tenant_model")
    await products.create_index(
        [("_id.tenant", 1), ("snPrefixes", 1)],
        name="tenant_prefix",
        unique=True,
        partialFilterExpression=HAS_PREFIXES,
    )
    await tsls.create_index(
        [("_id.tenant", 1), ("_id.model", 1), ("_id.version", 1)], name="tenant_model_version"
    )
    await create_missing(database, "product_usage")  # transactions write it


async def _index_rps(database: Database) -> None:
    keys = [("tenant", 1), ("applicationId", 1), ("_id", 1)]
    await database["rps"].create_index(keys, name="application")


async def _index_places(database: Database) -> None:
    named = {"locationProperty": {"$type": "string"}}
    await database["products"].create_index(
        "locationProperty", name="place", partialFilterExpression=named
    )


async def _index_codecs(database: Database) -> None:
    keys = [("_id.tenant", 1), ("_id.model", 1)]
    await database["codecs"].create_index(keys, name="tenant_model")


async def _index_healing(database: Database) -> None:
    await database["products"].create_index("healing.on", name="healing", sparse=True)


async def _make_libraries(database: Database) -> None:
    await create_missing(database, "template_libraries")


PRODUCT_MIGRATIONS = [
    Migration(100, "indexes of products and TSLs", _index_products),
    Migration(300, "indexes of RPS records", _index_rps),
    Migration(910, "products that say where devices are", _index_places),
    Migration(912, "indexes of codecs", _index_codecs),
    Migration(1802, "products whose gaps are healed", _index_healing),
    Migration(1901, "libraries of device templates", _make_libraries),
]


BATCH = 2_000
"""Devices that a migration changes at a time."""


async def _index_devices(database: Database) -> None:
    devices = database["devices"]
    mine = [("tenant", 1), ("application.applicationId", 1)]
    await devices.create_index([("snKey", 1)], name="sn", unique=True)
    await devices.create_index([*mine, ("_id", 1)], name="application")
    await devices.create_index([*mine, ("name", 1), ("_id", 1)], name="application_name")
    await devices.create_index([*mine, ("snKey", 1), ("_id", 1)], name="application_sn")
    await devices.create_index(
        [*mine, ("connectStatus", 1), ("_id", 1)], name="application_connect_status"
    )
    await devices.create_index([("tenant", 1), ("model", 1), ("tslVersion", 1)], name="product")
    await devices.create_index([("devEUI", 1)], name="dev_eui", sparse=True)
    await devices.create_index([("imei", 1)], name="imei", sparse=True)
    await create_missing(database, "serials")  # transactions write it


CONSOLE_INDEXES = {
    "console_id": ["_id", "integration"],
    "console_key": ["integration", "identifier", "_id"],
    "console_name": ["name", "_id"],
    "console_created": ["createdAt", "_id"],
}
"""Indexes of the most frequent orders of consoles, each within a tenant."""


async def _belong_to_integrations(database: Database) -> None:
    """Make devices that existed before integrations belong to `direct`."""
    devices = database["devices"]
    await devices.update_many(
        {"integration": None}, [{"$set": {"integration": DIRECT, "identifier": "$sn"}}]
    )
    for name, fields in CONSOLE_INDEXES.items():
        await devices.create_index([("tenant", 1), *((field, 1) for field in fields)], name=name)


async def _store_ngrams(database: Database) -> None:
    """Store ngrams for devices from before text search, in the order of ids."""
    devices, after = database["devices"], -1
    while True:
        without = {"_id": {"$gt": after}, "grams": None}
        found = await devices.find(
            without, {"name": 1, "snKey": 1}, sort=[("_id", 1)], limit=BATCH
        ).to_list()
        if not found:
            break
        await devices.bulk_write(
            [
                UpdateOne(
                    {"_id": device["_id"], "name": device["name"]},
                    {"$set": {"grams": extract_ngrams(device["name"], device["snKey"])}},
                )
                for device in found
            ],
            ordered=False,
        )
        after = found[-1]["_id"]
    fields = ("grams", "tenant", "application.applicationId", "_id")
    await devices.create_index([(field, 1) for field in fields], name=INDEX)


async def _release_serials(database: Database) -> None:
    """Mark the SNs of devices that were removed from their applications before."""
    nobodys = {"application": None, "userId": None, "integration": DIRECT}
    found = database["devices"].find(nobodys, {"snKey": 1, "tenant": 1}, batch_size=BATCH)
    async for device in found:
        change = {"$set": {"holder": "nobody", "behind": device["tenant"]}}
        await database["serials"].update_one({"_id": device["snKey"], "holder": "device"}, change)


async def _complete(database: Database) -> None:
    """Complete devices that processes of version 0.1 added or removed meanwhile."""
    await _store_ngrams(database)
    await _release_serials(database)


FLEET_INDEXES = {
    "fleet_status": ["connectStatus", "_id"],
    "fleet_model": ["model", "_id"],
    "fleet_tag": ["tag", "_id"],
    "fleet_updated": ["updatedAt", "_id"],
    "fleet_identifier": ["identifier", "_id"],
}
"""Indexes of the filters and orders of consoles, each within a tenant."""


async def _index_fleets(database: Database) -> None:
    devices = database["devices"]
    for name, fields in FLEET_INDEXES.items():
        await devices.create_index([("tenant", 1), *((field, 1) for field in fields)], name=name)
    place = [("tenant", 1), ("location.latitude", 1), ("location.longitude", 1)]
    placed = {"location.latitude": {"$exists": True}}
    await devices.create_index(place, name="place", partialFilterExpression=placed)


DEVICE_MIGRATIONS = [
    Migration(200, "indexes of devices", _index_devices),
    Migration(201, "integrations of devices, indexes of consoles", _belong_to_integrations),
    Migration(202, "grams of names and SNs", _store_ngrams),
    Migration(203, "SNs of devices that are nobody's", _release_serials),
    Migration(205, "indexes of searches over a fleet", _index_fleets),
    Migration(204, "grams and SNs from version 0.1", _complete, contract=True),
]
