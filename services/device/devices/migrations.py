"""Indexes of devices."""

from contextlib import suppress

from libs.common.store.migrations import Migration
from libs.common.store.mongo import CollectionExists, Database
from libs.common.things import DIRECT


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


MIGRATIONS = [
    Migration(200, "indexes of devices", _make_indexes),
    Migration(201, "integrations of devices, indexes of consoles", _belong_to_integrations),
]
