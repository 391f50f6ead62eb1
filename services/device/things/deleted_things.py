"""Things that are gone and whose remains are yet to be removed (`removed`).

`{_id: thing id, at}`, written in the transaction that deletes the thing. An id never returns.
"""

from abc import abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from libs.common.store.mongo import Database, Session

REMOVED = "removed"
SETTLED = timedelta(minutes=5)
"""After this nobody writes for the thing any more: processes knew it for a minute."""


class ThingDataStore(Protocol):
    """A store that keeps data of things, which goes with them."""

    @abstractmethod
    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the data of a thing that is deleted or gets another owner."""


class RemovedThings:
    """The collection `removed`."""

    def __init__(self, database: Database) -> None:
        self._removed = database[REMOVED]

    async def add(self, thing_ids: Iterable[int], session: Session) -> None:
        """Things go in the caller's transaction."""
        now = datetime.now(UTC)
        rows = [{"_id": one, "at": now} for one in thing_ids]
        if rows:
            await self._removed.insert_many(rows, session=session)

    async def settled(self, limit: int) -> list[int]:
        """Some things that are gone for long enough."""
        old = {"at": {"$lt": datetime.now(UTC) - SETTLED}}
        rows = await self._removed.find(old, {"_id": 1}, limit=limit).to_list(None)
        return [row["_id"] for row in rows]

    async def forget(self, thing_id: int) -> None:
        """Nothing of the thing is left."""
        await self._removed.delete_one({"_id": thing_id})
