"""Indexes of devices."""

from contextlib import suppress

from libs.common.store.migrations import Migration
from libs.common.store.mongo import CollectionExists, Database


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


MIGRATIONS = [Migration(200, "indexes of devices", _make_indexes)]
