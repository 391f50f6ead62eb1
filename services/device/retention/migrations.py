"""What ends by its age, and what was left before it had an end."""

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, create_missing
from services.device.things.removed import REMOVED

TURNS_KEPT = 3600
"""Seconds after which a turn that was taken stands in nobody's way."""


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


MIGRATIONS = [Migration(600, "an end for turns, profiles and things that are gone", _ends)]
