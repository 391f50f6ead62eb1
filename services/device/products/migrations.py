"""Indexes of products, TSLs and RPS records."""

from contextlib import suppress

from libs.common.store.migrations import Migration
from libs.common.store.mongo import CollectionExists, Database, create_missing

HAS_PREFIXES = {"snPrefixes.0": {"$exists": True}}
"""Products that the index of prefixes knows; queries say it, so that they may use it."""


async def _make_indexes(database: Database) -> None:
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
    with suppress(CollectionExists):  # a transaction should not have to create it
        await database.create_collection("product_usage")


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


MIGRATIONS = [
    Migration(100, "indexes of products and TSLs", _make_indexes),
    Migration(300, "indexes of RPS records", _index_rps),
    Migration(910, "products that say where devices are", _index_places),
    Migration(912, "indexes of codecs", _index_codecs),
    Migration(1802, "products whose gaps are healed", _index_healing),
    Migration(1901, "libraries of device templates", _make_libraries),
]
