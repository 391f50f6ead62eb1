"""Deleted things whose data remains to be deleted: the collection `removed`.

`{_id: thing id, at}`, written in the transaction that deletes the thing. Ids are never reused.
"""

from abc import abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from libs.common.store.mongo import Database, Session

REMOVED_COLLECTION = "removed"
DELETION_DELAY = timedelta(minutes=5)
"""Time from the deletion of a thing until its data is deleted: processes cache a thing for a minute
and may write."""


class ThingDataStore(Protocol):
    """A store with data of things that must be deleted together with the thing."""

    @abstractmethod
    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the data of a thing that is deleted or gets another owner."""


class DeletedThings:
    """The collection `removed`."""

    def __init__(self, database: Database) -> None:
        self._removed = database[REMOVED_COLLECTION]

    async def add(self, thing_ids: Iterable[int], session: Session) -> None:
        """Record deleted things in the caller's transaction."""
        now = datetime.now(UTC)
        rows = [{"_id": thing_id, "at": now} for thing_id in thing_ids]
        if rows:
            await self._removed.insert_many(rows, session=session)

    async def list_after_delay(self, limit: int) -> list[int]:
        """Return the ids of up to `limit` things deleted more than `DELETION_DELAY` ago."""
        old = {"at": {"$lt": datetime.now(UTC) - DELETION_DELAY}}
        rows = await self._removed.find(old, {"_id": 1}, limit=limit).to_list(None)
        return [row["_id"] for row in rows]

    async def delete_record(self, thing_id: int) -> None:
        """Delete the record of a deleted thing whose data has been deleted too."""
        await self._removed.delete_one({"_id": thing_id})
