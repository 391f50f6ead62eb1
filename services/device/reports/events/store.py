"""Events in MongoDB: `device_events`, clustered by the key that history has.

`{_id, e, o, at}`: `e` is the id of the event in the TSL, `o` has its outputs. `ReportStore`
writes them.
"""

from collections.abc import AsyncGenerator
from typing import Any

from libs.common.store.mongo import Database, Document, page_stages, read_rows
from services.device.reports.history.partitions import LAST, history_key

EVENTS = "device_events"


class EventStore:
    """Reads events; `collection` is for the store that writes them."""

    def __init__(self, database: Database) -> None:
        self.collection = database[EVENTS]

    def before(
        self, first: bytes, key: bytes, limit: int, event_id: str | None = None
    ) -> AsyncGenerator[Document, None]:
        """Yield events with keys from `first` on and below `key`, the newest first."""
        query: dict[str, Any] = {"_id": {"$gte": first, "$lt": key}}
        if event_id is not None:
            query["e"] = event_id
        return read_rows(self.collection, page_stages(query, [("_id", -1)], limit=limit))

    async def last(self, thing_id: int, event_id: str, oldest: int) -> Document | None:
        """Return the newest event with this id of a device, not older than `oldest` (ms)."""
        keys = {"$gte": history_key(thing_id, oldest, 0), "$lt": history_key(thing_id, LAST, LAST)}
        return await self.collection.find_one({"_id": keys, "e": event_id}, sort=[("_id", -1)])
