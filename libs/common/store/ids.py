"""Ids from a hi/lo allocator on a MongoDB counter.

A process reserves a block of ids in one round trip and assigns them from memory. Ids are unique
across replicas, increase roughly with time and stay below 2^53, so that every JSON parser reads
them exactly. A crash wastes at most the rest of a block.
"""

import asyncio

from pymongo import ReturnDocument

from libs.common.store.mongo import Database, require_document

FIRST_ID = 1_000_000
"""The first id, large enough not to be confused with a row number."""


class IdAllocator:
    """Allocates the ids of a sequence."""

    def __init__(self, database: Database, name: str, block: int = 500) -> None:
        self._counters = database["counters"]
        self._name = name
        self._block = block
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def allocate(self) -> int:
        """Return a new unique id."""
        if self._next >= self._end:
            async with self._lock:
                if self._next >= self._end:
                    await self._refill()
        self._next += 1
        return self._next - 1

    async def _refill(self) -> None:
        counter = await self._counters.find_one_and_update(
            {"_id": self._name},
            [{"$set": {"next": {"$add": [{"$ifNull": ["$next", FIRST_ID]}, self._block]}}}],
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        self._end = int(require_document(counter)["next"])
        self._next = self._end - self._block
