"""Which replicas live: each renews its sign of life; time is the database's.

`replicas`: `{_id: replica, until}`.
"""

from libs.common.scheduling.turns import repeat
from libs.common.store.mongo import Database

LIFE = 15.0
"""Seconds without a sign after which a replica counts as dead."""


class Replicas:
    """The replicas of the service, this one among them."""

    def __init__(self, database: Database, replica: str) -> None:
        self._replicas = database["replicas"]
        self.own = replica

    async def sign(self) -> None:
        """Show that this one lives."""
        until = {
            "$dateAdd": {"startDate": "$$NOW", "unit": "millisecond", "amount": int(LIFE * 1000)}
        }
        await self._replicas.update_one(
            {"_id": self.own}, [{"$set": {"until": until}}], upsert=True
        )

    async def renew(self) -> None:
        """Show it for ever."""
        await repeat(self.sign, LIFE / 5, f"replica {self.own} could not show that it lives")

    async def leave(self) -> None:
        """Say that this one is gone, so that nobody waits for it."""
        await self._replicas.delete_one({"_id": self.own})

    async def alive(self) -> list[str]:
        """Those that live; the others are forgotten."""
        late = {"$expr": {"$lt": ["$until", "$$NOW"]}}
        await self._replicas.delete_many(late)
        return [row["_id"] async for row in self._replicas.find({}, {"_id": 1})]
