"""A queue whose items are taken in turns of their tenants."""

import asyncio
from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

from libs.common.scheduling.lanes import Lanes

T = TypeVar("T")

COST = 256
"""Bytes that an item counts beside its size when lanes take turns."""
QUANTUM = 16 * 1024.0
"""Bytes that a lane may take each round."""


class Overflow(Enum):
    """What a full lane does with one more item. Each lost item is counted by tenant."""

    REJECT = "reject"
    """Raise `LaneFull`."""
    DROP_OLDEST = "drop oldest"
    DROP_NEWEST = "drop newest"


class FairQueue(Generic[T]):
    """Items of tenants; lanes take turns by the bytes that they have taken."""

    def __init__(self, name: str, *, items: int, size: int, overflow: Overflow) -> None:
        """Each lane holds at most `items` items and `size` bytes."""
        self._lanes: Lanes[T] = Lanes(name, items, size, quantum=QUANTUM)
        self._overflow = overflow
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return self._lanes.items

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return self._lanes.size

    def waiting(self, lane: str) -> int:
        """Return how many items of a lane wait."""
        return self._lanes.waiting(lane)

    def note_overflow(self, lane: str) -> None:
        """Count an item that its caller dropped."""
        self._lanes.note_overflow(lane)

    def put(self, lane: str, item: T, *, size: int = 0, sub: Hashable = None) -> bool:
        """Let an item wait; return False when it, or an older one, was dropped for lack of room."""
        kept = self._lanes.has_room(lane, size)
        if not kept:
            if self._overflow is Overflow.DROP_NEWEST:
                self._lanes.note_overflow(lane)
                return False
            while self._overflow is Overflow.DROP_OLDEST and not self._lanes.has_room(lane, size):
                self._lanes.note_overflow(lane)
                self._lanes.pop(lane, next(self._lanes.sub_lanes(lane)))
        self._lanes.put(lane, item, size=size, sub=sub)
        self._filled.set()
        return kept

    async def take(self, most: int, size: int) -> list[tuple[str, T]]:
        """Wait for an item; return up to `most` with up to `size` bytes, one at least, by turns."""
        while not self._lanes:
            self._filled.clear()
            await self._filled.wait()
        return self.take_now(most, size)

    def take_now(self, most: int, size: int) -> list[tuple[str, T]]:
        """Return what waits, up to `most` items with up to `size` bytes, by turns."""
        taken: list[tuple[str, T]] = []
        total = 0
        while len(taken) < most and total < size and (lane := self._lanes.next()) is not None:
            item, item_size = self._lanes.pop(lane, next(self._lanes.sub_lanes(lane)))
            self._lanes.charge(lane, item_size + COST)
            total += item_size
            taken.append((lane, item))
        return taken
