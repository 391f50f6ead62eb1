"""The ledger: how many uplinks were stored and how many rejected, exactly.

A count is written in the transaction that stores what it counts, so `accepted = stored +
rejected + waiting` holds after any crash. Each transaction in flight counts on a document
that no other one writes: two that overlap on one document conflict, and the later is done
again whole, batch and all.

With the count stands which uplinks it counted, as long as `UPLINK` may deliver them again: one
that is judged differently then, because its device has changed meanwhile, is not counted twice.
"""

import zlib
from array import array
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any
from uuid import uuid4

from libs.common.store.mongo import Mongo, Session
from services.device.telemetry.uplink import Uplink

PAST = "past"
"""The page that pages of processes which have ended are added to."""
UNUSED = timedelta(days=1)
"""After this a page is added to `PAST`; whoever writes on it again begins at 0."""
FOLDED = 500
"""Most pages that are added at once."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the platform was set up."""

    stored: int
    rejected: int


class Ledger:
    """The counts of one process, and the sum over all."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._ledger = mongo.database["ledger"]
        self._free: list[str] = []
        self.waiting: Sequence[range] = [range(2**63 - 1)]
        """Sequences that may still come, those of each partition from its first one on, or some
        before it: what was counted of others is forgotten."""

    async def counting(
        self,
        work: Callable[[Session], Awaitable[bool]],
        *,
        stored: Collection[Uplink] = (),
        rejected: Collection[Uplink] = (),
    ) -> bool:
        """Do `work` and count uplinks in one transaction, unless it says that it did nothing."""
        page = self._free.pop() if self._free else uuid4().hex  # pages are used again

        async def counted(session: Session) -> bool:
            if not await work(session):
                return False
            await self.count(page, session, stored=stored, rejected=rejected)
            return True

        try:
            return await self._mongo.transaction(counted)
        finally:
            self._free.append(page)

    async def count(
        self,
        page: str,
        session: Session,
        *,
        stored: Collection[Uplink],
        rejected: Collection[Uplink],
    ) -> None:
        """Add uplinks to the counts of a page in the caller's transaction."""
        if not stored and not rejected:
            return
        seen = {"$ifNull": ["$seen", []]}
        last = "$$this.last"
        may_come = [
            {"$and": [{"$gte": [last, some.start]}, {"$lt": [last, some.stop]}]}
            for some in self.waiting
        ]
        kept = {"$filter": {"input": seen, "cond": {"$or": may_come}}}
        changes = {
            "stored": {"$add": [{"$ifNull": ["$stored", 0]}, len(stored)]},
            "rejected": {"$add": [{"$ifNull": ["$rejected", 0]}, len(rejected)]},
            "at": "$$NOW",
            "seen": {"$concatArrays": [kept, [_packed([*stored, *rejected])]]},
        }
        await self._ledger.update_one(
            {"_id": page}, [{"$set": changes}], upsert=True, session=session
        )

    async def known(self, uplinks: Sequence[Uplink]) -> set[int]:
        """The sequences of those that have been counted."""
        if not uplinks:
            return set()
        wanted = {uplink.sequence: uplink.received for uplink in uplinks}
        found: set[int] = set()
        query = {"seen.last": {"$gte": min(wanted)}}
        async for page in self._ledger.find(query, {"seen": 1}):
            for seen in page["seen"]:
                if seen["last"] >= min(wanted) and seen["first"] <= max(wanted):
                    found |= {
                        one
                        for one in wanted.keys() & _sequences(seen)
                        if seen["from"] <= wanted[one] <= seen["to"]
                    }
        return found

    async def fold(self) -> None:
        """Add up pages that nobody writes on any more, so that restarts leave nothing.

        A page whose messages may still come again is kept.
        """
        old = {
            "_id": {"$ne": PAST},
            "at": {"$not": {"$gt": datetime.now(UTC) - UNUSED}},
            "$nor": [
                {"seen": {"$elemMatch": {"last": {"$gte": some.start, "$lt": some.stop}}}}
                for some in self.waiting
            ],
        }

        async def work(session: Session) -> int:
            found = self._ledger.find(old, limit=FOLDED, session=session)
            pages: list[dict[str, Any]] = await found.to_list(None)
            if pages:
                gone = {"_id": {"$in": [page["_id"] for page in pages]}}
                await self._ledger.delete_many(gone, session=session)
                sums = {name: sum(page[name] for page in pages) for name in ("stored", "rejected")}
                await self._ledger.update_one(
                    {"_id": PAST}, {"$inc": sums}, upsert=True, session=session
                )
            return len(pages)

        while await self._mongo.transaction(work) == FOLDED:
            pass

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
        for row in await (await self._ledger.aggregate(pipeline)).to_list(1):
            return Totals(row["stored"], row["rejected"])
        return Totals(0, 0)


def _packed(uplinks: Sequence[Uplink]) -> dict[str, Any]:
    """Uplinks in a few bytes: the distances of their sequences, compressed."""
    numbers = sorted({uplink.sequence for uplink in uplinks})
    steps = array("Q", (after - before for before, after in pairwise(numbers)))
    times = [uplink.received for uplink in uplinks]
    return {
        "first": numbers[0],
        "last": numbers[-1],
        "from": min(times),
        "to": max(times),
        "steps": zlib.compress(steps.tobytes(), 1),
    }


def _sequences(seen: dict[str, Any]) -> set[int]:
    steps = array("Q")
    steps.frombytes(zlib.decompress(seen["steps"]))
    return set(accumulate(steps, initial=seen["first"]))
