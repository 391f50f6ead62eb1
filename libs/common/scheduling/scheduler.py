"""Workers and queues with fair shares for tenants."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Generic, NamedTuple, TypeVar

from libs.common.scheduling.lanes import Lanes

R = TypeVar("R")
Turn = asyncio.Future[float]
"""A waiting item; the result of the future is the start time of its worker."""

DEFAULT_LANE_ITEMS, DEFAULT_LANE_BYTES = 1_000, 8 * 1024**2
"""Default limits of a lane's backlog: items and bytes."""


class Caps(NamedTuple):
    """Maximum numbers of workers at a time."""

    lane: int
    """Workers of a lane."""
    sub: int
    """Workers of each sub-lane."""


class FairScheduler:
    """Assigns workers to lanes in turn.

    A lane gets another worker while it holds fewer than are free: a single lane gets half of the
    workers, two lanes a third each, and so on. So a new lane finds a free worker.
    """

    def __init__(
        self,
        name: str,
        workers: int,
        *,
        items: int = DEFAULT_LANE_ITEMS,
        size: int = DEFAULT_LANE_BYTES,
        caps: Callable[[str], Caps] | None = None,
        has_metrics: bool = True,
    ) -> None:
        """Limit a lane's backlog to `items` items and `size` bytes.

        `caps` returns the maximum workers of a lane and of each sub-lane; they may change. Without
        `has_metrics`, there are no metrics: metrics name the lanes, which must then be tenants.
        """
        self._lanes: Lanes[Turn] = Lanes(name, items, size, has_metrics=has_metrics)
        self._free = workers
        self._caps = caps
        self._held: Counter[tuple[str, Hashable]] = Counter()
        """Workers of each sub-lane, counted only with `caps`."""
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def free(self) -> int:
        """The number of free workers."""
        return self._free

    @property
    def size(self) -> int:
        """The bytes of waiting items."""
        return self._lanes.size

    def count_overflow(self, lane: str) -> None:
        """Count an item that its caller dropped."""
        self._lanes.count_overflow(lane)

    def held(self, lane: str) -> int:
        """Return the number of workers of a lane."""
        return self._lanes.running(lane)

    def waiting(self, lane: str) -> int:
        """Return the number of waiting items of a lane."""
        return self._lanes.waiting(lane)

    @asynccontextmanager
    async def slot(
        self, lane: str, *, sub: Hashable = None, size: int = 0, deadline: float | None = None
    ) -> AsyncIterator[None]:
        """Wait for the lane's turn, and hold a worker until the block ends.

        Raises `LaneFull` immediately if the lane's backlog is full, and `TimeoutError` if the block
        has not ended `deadline` seconds after the call.
        """
        async with nullcontext() if deadline is None else asyncio.timeout(deadline):
            began = await self.acquire(lane, sub=sub, size=size)
            try:
                yield
            finally:
                self.release(lane, began, sub=sub)

    async def acquire(self, lane: str, *, sub: Hashable = None, size: int = 0) -> float:
        """Wait for a worker; return its start time for `release`. Raises `LaneFull`."""
        turn = self._enter(lane, sub, size)
        return turn if isinstance(turn, float) else await self._wait_for_turn(turn, lane, sub, size)

    def release(self, lane: str, began: float, *, sub: Hashable = None) -> None:
        """Release a worker of a lane."""
        self._free += 1
        self._lanes.end(lane, began)
        if self._caps:
            self._held[lane, sub] -= 1
            if not self._held[lane, sub]:
                del self._held[lane, sub]
        self._hand_out()

    async def run(
        self,
        lane: str,
        job: Callable[[], Awaitable[R]],
        *,
        sub: Hashable = None,
        size: int = 0,
        deadline: float | None = None,
    ) -> R:
        """Run `job` in a slot and return its result; raises the errors of `slot`."""
        async with self.slot(lane, sub=sub, size=size, deadline=deadline):
            return await job()

    def start(
        self,
        lane: str,
        job: Callable[[], Coroutine[Any, Any, R]],
        *,
        sub: Hashable = None,
        size: int = 0,
    ) -> "asyncio.Task[R]":
        """Run `job` in a task after the lane's turn; raise `LaneFull` if its backlog is full."""
        turn = self._enter(lane, sub, size)
        task = asyncio.ensure_future(self._run(turn, lane, job, sub, size))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self) -> None:
        """Wait for the end of the started tasks."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(
        self,
        turn: "float | Turn",
        lane: str,
        job: Callable[[], Coroutine[Any, Any, R]],
        sub: Hashable,
        size: int,
    ) -> R:
        began = (
            turn if isinstance(turn, float) else await self._wait_for_turn(turn, lane, sub, size)
        )
        try:
            return await job()
        finally:
            self.release(lane, began, sub=sub)

    def _enter(self, lane: str, sub: Hashable, size: int) -> "float | Turn":
        """Return the start time of a worker, or its future after queueing in the lane."""
        if not self._lanes.waiting(lane) and self._may_hold(lane, [sub]):
            return self._hold(lane, sub)
        turn: Turn = asyncio.get_running_loop().create_future()
        self._lanes.put(lane, turn, size=size, sub=sub)
        if self._may_hold(lane, [sub]):  # other sub-lanes may wait because of their own cap
            self._hand_out()
        return turn

    async def _wait_for_turn(self, turn: Turn, lane: str, sub: Hashable, size: int) -> float:
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._lanes.remove(lane, turn, size=size, sub=sub)
            else:  # a worker was assigned at the same moment
                self.release(lane, turn.result(), sub=sub)
            raise

    def _hold(self, lane: str, sub: Hashable) -> float:
        self._free -= 1
        if self._caps:
            self._held[lane, sub] += 1
        return self._lanes.begin(lane)

    def _hand_out(self) -> None:
        """Assign free workers to the lanes whose turn it is."""
        while self._free and (lane := self._lanes.next(self._may_run_waiting)) is not None:
            maximum = self._caps(lane).sub if self._caps else math.inf
            subs = self._lanes.sub_lanes(lane)
            sub = next(sub for sub in subs if self._held[lane, sub] < maximum)
            turn, _ = self._lanes.pop(lane, sub)
            if not turn.done():  # else it is cancelled
                turn.set_result(self._hold(lane, sub))

    def _may_run_waiting(self, lane: str) -> bool:
        return self._may_hold(lane, self._lanes.sub_lanes(lane))

    def _may_hold(self, lane: str, subs: Iterable[Hashable]) -> bool:
        """Return whether a lane may hold one more worker for one of its sub-lanes."""
        running = self._lanes.running(lane)
        if running >= self._free or not self._caps:
            return running < self._free
        maximum = self._caps(lane)
        return running < maximum.lane and any(self._held[lane, sub] < maximum.sub for sub in subs)


T = TypeVar("T")

ITEM_OVERHEAD_BYTES = 256
"""Bytes that each item uses in addition to its size."""
QUANTUM_BYTES = 16 * 1024.0
"""Bytes of a lane per round."""


class FairQueue(Generic[T]):
    """A queue of items of tenants; the lanes take turns by bytes."""

    def __init__(self, name: str, *, items: int, size: int) -> None:
        """Limit each lane to `items` items and `size` bytes."""
        self._lanes: Lanes[T] = Lanes(name, items, size, quantum=QUANTUM_BYTES)
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return self._lanes.items

    @property
    def size(self) -> int:
        """The bytes of waiting items."""
        return self._lanes.size

    def waiting(self, lane: str) -> int:
        """Return the number of waiting items of a lane."""
        return self._lanes.waiting(lane)

    def count_overflow(self, lane: str) -> None:
        """Count an item that its caller dropped."""
        self._lanes.count_overflow(lane)

    def put(self, lane: str, item: T, *, size: int = 0) -> bool:
        """Queue an item; if its lane is full, drop and count it, and return False."""
        if not self._lanes.has_room(lane, size):
            self._lanes.count_overflow(lane)
            return False
        self._lanes.put(lane, item, size=size)
        self._filled.set()
        return True

    async def pop_batch(self, maximum: int, size: int) -> list[tuple[str, T]]:
        """Wait for items; remove up to `maximum` with about `size` bytes, at least one."""
        while not self._lanes:
            self._filled.clear()
            await self._filled.wait()
        return self.pop_waiting(maximum, size)

    def pop_waiting(self, maximum: int, size: int) -> list[tuple[str, T]]:
        """Remove the waiting items, up to `maximum` with about `size` bytes, in turns."""
        popped: list[tuple[str, T]] = []
        total = 0
        while len(popped) < maximum and total < size and (lane := self._lanes.next()) is not None:
            item, item_size = self._lanes.pop(lane)
            self._lanes.charge(lane, item_size + ITEM_OVERHEAD_BYTES)
            total += item_size
            popped.append((lane, item))
        return popped
