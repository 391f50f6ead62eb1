"""The versions of `auth`'s database."""

from libs.common.store.migrations import Migration
from libs.common.store.mongo import CollectionExists, Database

COLLECTIONS = ("applications", "device_credentials", "revocations", "outbox", "counters")


async def _first(database: Database) -> None:
    for name in COLLECTIONS:
        try:
            await database.create_collection(name)
        except CollectionExists:
            continue
    await database["applications"].create_index("clientId", unique=True)
    await database["applications"].create_index([("tenant", 1), ("name", 1)], unique=True)
    await database["revocations"].create_index("at")
    await database["outbox"].create_index("at")


MIGRATIONS = (Migration(1, "applications, device credentials, revocations, outbox", _first),)
