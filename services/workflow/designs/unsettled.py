"""Flows whose service entity may not be in step yet, in MongoDB: `unsettled`.

`{_id: flow id, tenant, at}`, written before anything is done to the entity, which another
service has; time is the database's.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from libs.common.store.mongo import Database, Session


class Unsettled(NamedTuple):
    """A flow that was changed at a time."""

    tenant: str
    flow_id: int
    at: datetime


class UnsettledStore:
    """Reads and writes them."""

    def __init__(self, database: Database) -> None:
        self._flows = database["unsettled"]

    async def note(self, tenant: str, ids: Sequence[int], session: Session | None = None) -> None:
        """Flows are about to change."""
        for flow_id in ids:
            change = [{"$set": {"tenant": {"$literal": tenant}, "at": "$$NOW"}}]
            await self._flows.update_one({"_id": flow_id}, change, upsert=True, session=session)

    async def older(self, seconds: int, most: int) -> list[Unsettled]:
        """Those that were noted so long ago that whoever did has ended, the oldest first."""
        until = {"$dateSubtract": {"startDate": "$$NOW", "unit": "second", "amount": seconds}}
        found = self._flows.find({"$expr": {"$lt": ["$at", until]}}).sort("at", 1).limit(most)
        return [Unsettled(row["tenant"], row["_id"], row["at"]) async for row in found]

    async def settled(self, one: Unsettled) -> None:
        """It is in step, unless it was changed again."""
        await self._flows.delete_one({"_id": one.flow_id, "at": one.at})
