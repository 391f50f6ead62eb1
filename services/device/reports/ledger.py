"""The ledger: how many uplinks were stored and how many rejected, exactly.

A count is written in the transaction that stores what it counts, so `accepted = stored +
rejected + waiting` holds after any crash. Each transaction in flight counts on a document
that no other one writes: two that overlap on one document conflict, and the later is done
again whole, batch and all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
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
        self._free: list[str] = []

    @contextmanager
    def page(self) -> Iterator[str]:
        """A page to count on, held around a transaction; pages are used again."""
        page = self._free.pop() if self._free else uuid4().hex
        try:
            yield page
        finally:
            self._free.append(page)

    async def count(
        self, page: str, session: Session, *, stored: int = 0, rejected: int = 0
    ) -> None:
        """Add to the counts of a page inside the caller's transaction."""
        if stored or rejected:
            await self._ledger.update_one(
                {"_id": page},
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
