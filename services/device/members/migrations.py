"""Collections and indexes of entities."""

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, create_missing

BY_MODEL = ("tenant", "model", "tslVersion", "shape", "integration", "snKey", "name")
"""What devices are counted by, and what keywords look at: so that no document is read."""


async def _make_collections(database: Database) -> None:
    for name in ("members", "shapes", "things"):  # some are written in transactions
        await create_missing(database, name)
    await database["things"].create_index(
        [("tenant", 1), ("integration", 1), ("identifier", 1)], name="thing", unique=True
    )
    devices = database["devices"]
    await devices.create_index([(field, 1) for field in BY_MODEL], name="model")
    if "product" in await devices.index_information():  # which is a part of that one
        await devices.drop_index("product")


async def _index_shapes(database: Database) -> None:
    """By what names a shape: so that one that nobody names is found, and deleted."""
    await database["devices"].create_index("shape", name="shape", sparse=True)
    await database["shapes"].create_index("parent", name="parent", sparse=True)


async def _index_integrations(database: Database) -> None:
    """By what integrations list their devices."""
    await database["devices"].create_index([("integration", 1), ("_id", 1)], name="integration")


MIGRATIONS = [
    Migration(400, "members, shapes and things", _make_collections),
    Migration(411, "indexes of shapes", _index_shapes),
    Migration(500, "devices by integration", _index_integrations),
]
