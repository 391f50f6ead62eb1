"""The ledger: how many uplinks were stored and how many rejected, exactly.

A count is written in the transaction that stores what it counts, so `accepted = stored +
rejected + waiting` holds after any crash. `accepted` is the stream's own last sequence
number. Each process counts on a document of its own, so that processes do not contend.
"""

from dataclasses import dataclass
from uuid import uuid4

from libs.common.store.mongo import Database, Session


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the platform was set up."""

    stored: int
    rejected: int


class Ledger:
    """The counts of one process, and the sum over all."""

    def __init__(self, database: Database) -> None:
        self._ledger = database["ledger"]
        self._id = uuid4().hex

    async def count(self, session: Session, *, stored: int = 0, rejected: int = 0) -> None:
        """Add to the counts inside the caller's transaction."""
        if stored or rejected:
            await self._ledger.update_one(
                {"_id": self._id},
                {"$inc": {"stored": stored, "rejected": rejected}},
                upsert=True,
                session=session,
            )

    async def totals(self) -> Totals:
        """The sum over all processes, past ones included."""
        pipeline = [
            {
                "$group": {
                    "_id": None,
                    "stored": {"$sum": "$stored"},
                    "rejected": {"$sum": "$rejected"},
                }
            }
        ]
        for row in await self._ledger.aggregate(pipeline).to_list(1):
            return Totals(row["stored"], row["rejected"])
        return Totals(0, 0)
