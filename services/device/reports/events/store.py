"""Events in MongoDB: `device_events`, clustered by the key that history has.

`{_id, e, o, at}`: `e` is the id of the event in the TSL, `o` has its outputs. `ReportStore`
writes them.
"""

from typing import Any

from libs.common.store.mongo import Database, Document
from services.device.reports.history.partitions import LAST, history_key

EVENTS = "device_events"


class EventStore:
    """Reads events; `collection` is for the store that writes them."""

    def __init__(self, database: Database) -> None:
        self.collection = database[EVENTS]

    async def before(
        self, first: bytes, key: bytes, limit: int, event_id: str | None = None
    ) -> list[Document]:
        """Return events with keys from `first` on and below `key`, the newest first."""
        query: dict[str, Any] = {"_id": {"$gte": first, "$lt": key}}
        if event_id is not None:
            query["e"] = event_id
        return await self.collection.find(query, sort=[("_id", -1)], limit=limit).to_list(None)

    async def last(self, thing_id: int, event_id: str, oldest: int) -> Document | None:
        """Return the newest event with this id of a device, not older than `oldest` (ms)."""
        first, end = history_key(thing_id, oldest, 0), history_key(thing_id, LAST, LAST)
        found = await self.before(first, end, 1, event_id)
        return found[0] if found else None
