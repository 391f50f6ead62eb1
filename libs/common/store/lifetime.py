"""Lets MongoDB remove documents when their time is over: an index that follows a setting."""

import logging

from libs.common.store.mongo import Database, drop_present

log = logging.getLogger(__name__)

INDEX = "retention"
DAY = 86_400
MOST_DAYS = 24_855
"""As many days as MongoDB's 32 bits of seconds hold."""


async def keep_for(database: Database, collection: str, field: str, days: int) -> None:
    """Keep documents for `days` after their `field`, 0 for ever.

    What is over is removed within minutes; a document without the field stays. Every replica
    does this at its start and comes to the same.
    """
    indexes = await database[collection].index_information()
    found = indexes.get(INDEX)
    if days == 0:
        await drop_present(database[collection], INDEX)
    elif found is None:
        await database[collection].create_index(field, name=INDEX, expireAfterSeconds=days * DAY)
    elif found["expireAfterSeconds"] != days * DAY:
        index = {"name": INDEX, "expireAfterSeconds": days * DAY}
        await database.command("collMod", collection, index=index)
    log.info("%s are kept %s", collection, f"{days} days" if days else "for ever")
