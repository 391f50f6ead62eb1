"""Indexes of devices."""

from contextlib import suppress

from pymongo import UpdateOne

from libs.common.store.migrations import Migration
from libs.common.store.mongo import CollectionExists, Database
from libs.common.things import DIRECT
from services.device.things.grams import INDEX, grams_of

BATCH = 2_000
"""Devices that a migration changes at a time."""


async def _make_indexes(database: Database) -> None:
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
    with suppress(CollectionExists):  # a transaction should not have to create it
        await database.create_collection("serials")


CONSOLE_INDEXES = {
    "console_id": ["_id", "integration"],
    "console_key": ["integration", "identifier", "_id"],
    "console_name": ["name", "_id"],
    "console_created": ["createdAt", "_id"],
}
"""The orders that consoles ask for most, each within a tenant."""


async def _belong_to_integrations(database: Database) -> None:
    """Devices that applications added before there were integrations are direct ones."""
    devices = database["devices"]
    await devices.update_many(
        {"integration": None}, [{"$set": {"integration": DIRECT, "identifier": "$sn"}}]
    )
    for name, fields in CONSOLE_INDEXES.items():
        await devices.create_index([("tenant", 1), *((field, 1) for field in fields)], name=name)


async def _give_grams(database: Database) -> None:
    """Grams for devices that were added before there were any, in the order of ids."""
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
                    {"$set": {"grams": grams_of(device["name"], device["snKey"])}},
                )
                for device in found
            ],
            ordered=False,
        )
        after = found[-1]["_id"]
    fields = ("grams", "tenant", "application.applicationId", "_id")
    await devices.create_index([(field, 1) for field in fields], name=INDEX)


async def _lay_down(database: Database) -> None:
    """SNs of devices that were removed from their applications before that was noted there."""
    nobodys = {"application": None, "userId": None, "integration": DIRECT}
    found = database["devices"].find(nobodys, {"snKey": 1, "tenant": 1}, batch_size=BATCH)
    async for device in found:
        change = {"$set": {"holder": "nobody", "behind": device["tenant"]}}
        await database["serials"].update_one({"_id": device["snKey"], "holder": "device"}, change)


async def _complete(database: Database) -> None:
    """Devices that processes of version 0.1 have added or removed beside newer ones."""
    await _give_grams(database)
    await _lay_down(database)


FLEET_INDEXES = {
    "fleet_status": ["connectStatus", "_id"],
    "fleet_model": ["model", "_id"],
    "fleet_tag": ["tag", "_id"],
    "fleet_updated": ["updatedAt", "_id"],
    "fleet_identifier": ["identifier", "_id"],
}
"""What consoles look for and sort by, each within a tenant."""


async def _index_fleets(database: Database) -> None:
    devices = database["devices"]
    for name, fields in FLEET_INDEXES.items():
        await devices.create_index([("tenant", 1), *((field, 1) for field in fields)], name=name)
    place = [("tenant", 1), ("location.latitude", 1), ("location.longitude", 1)]
    placed = {"location.latitude": {"$exists": True}}
    await devices.create_index(place, name="place", partialFilterExpression=placed)


MIGRATIONS = [
    Migration(200, "indexes of devices", _make_indexes),
    Migration(201, "integrations of devices, indexes of consoles", _belong_to_integrations),
    Migration(202, "grams of names and SNs", _give_grams),
    Migration(203, "SNs of devices that are nobody's", _lay_down),
    Migration(205, "indexes of searches over a fleet", _index_fleets),
    Migration(204, "grams and SNs from version 0.1", _complete, contract=True),
]
