"""Lets MongoDB remove audit entries when their time is over: an index that follows a setting."""

import logging

from libs.common.store.mongo import Database, drop_present

log = logging.getLogger(__name__)

INDEX = "retention"
DAY = 86_400


async def keep_audit(database: Database, days: int) -> None:
    """Keep entries for `days`, 0 for ever; what is over is removed within minutes.

    Every replica does this at its start and comes to the same.
    """
    indexes = await database["audit"].index_information()
    found = indexes.get(INDEX)
    if days == 0:
        await drop_present(database["audit"], INDEX)
    elif found is None:
        await database["audit"].create_index("at", name=INDEX, expireAfterSeconds=days * DAY)
    elif found["expireAfterSeconds"] != days * DAY:
        index = {"name": INDEX, "expireAfterSeconds": days * DAY}
        await database.command("collMod", "audit", index=index)
    log.info("audit entries are kept %s", f"{days} days" if days else "for ever")
