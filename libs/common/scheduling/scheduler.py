"""Workers that tenants take turns at."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, NamedTuple, TypeVar

from libs.common.scheduling.lanes import Lanes

R = TypeVar("R")
Turn = asyncio.Future[float]
"""Has the time at which a worker was given."""

ITEMS, SIZE = 1_000, 8 * 1024**2
"""Default bounds of a lane's backlog: items and bytes."""


class Caps(NamedTuple):
    """Most workers at a time."""

    lane: int
    """Of a lane."""
    sub: int
    """Of each sub-lane."""


class FairScheduler:
    """Gives workers to lanes in turn.

    A lane gets another worker while it holds fewer than are free: one lane alone gets half of them,
    two a third each, and so on. So a newcomer finds a free worker.
    """

    def __init__(
        self,
        name: str,
        workers: int,
        *,
        items: int = ITEMS,
        size: int = SIZE,
        caps: Callable[[str], Caps] | None = None,
        observed: bool = True,
    ) -> None:
        """A lane's backlog has at most `items` items and `size` bytes.

        `caps` gives the most workers of a lane and of each of its sub-lanes; they may change.
        Without `observed` there are no metrics: they name the lanes, which have to be tenants.
        """
        self._lanes: Lanes[Turn] = Lanes(name, items, size, observed=observed)
        self._free = workers
        self._caps = caps
        self._held: Counter[tuple[str, Hashable]] = Counter()
        """Workers of each sub-lane; only counted with `caps`."""
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def free(self) -> int:
        """Workers that no lane holds."""
        return self._free

    @property
    def size(self) -> int:
        """Bytes of the items that wait."""
        return self._lanes.size

    def note_overflow(self, lane: str) -> None:
        """Count an item that its caller dropped."""
        self._lanes.note_overflow(lane)

    def held(self, lane: str) -> int:
        """Return how many workers a lane holds."""
        return self._lanes.running(lane)

    def waiting(self, lane: str) -> int:
        """Return how many items of a lane wait."""
        return self._lanes.waiting(lane)

    @asynccontextmanager
    async def slot(
        self, lane: str, *, sub: Hashable = None, size: int = 0, deadline: float | None = None
    ) -> AsyncIterator[None]:
        """Hold a worker around the block, from the lane's turn on.

        Raises `LaneFull` at once when the lane's backlog is full, and `TimeoutError` when the block
        has not ended `deadline` seconds after the call.
        """
        async with nullcontext() if deadline is None else asyncio.timeout(deadline):
            turn = self._enter(lane, sub, size)
            began = turn if isinstance(turn, float) else await self._turn(turn, lane, sub, size)
            try:
                yield
            finally:
                self._release(lane, sub, began)

    async def run(
        self,
        lane: str,
        job: Callable[[], Awaitable[R]],
        *,
        sub: Hashable = None,
        size: int = 0,
        deadline: float | None = None,
    ) -> R:
        """Run `job` in a slot and return its result; raise as `slot` does."""
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
        """Run `job` in a task, from the lane's turn on; raise `LaneFull` when it has no room."""
        turn = self._enter(lane, sub, size)
        task = asyncio.ensure_future(self._run(turn, lane, job, sub, size))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self) -> None:
        """Wait until the tasks that were started have ended."""
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
        began = turn if isinstance(turn, float) else await self._turn(turn, lane, sub, size)
        try:
            return await job()
        finally:
            self._release(lane, sub, began)

    def _enter(self, lane: str, sub: Hashable, size: int) -> "float | Turn":
        """Hold a worker, or wait in the lane; return when it began, or will."""
        if not self._lanes.waiting(lane) and self._may(lane) and self._may_sub(lane, sub):
            return self._hold(lane, sub)
        turn: Turn = asyncio.get_running_loop().create_future()
        self._lanes.put(lane, turn, size=size, sub=sub)
        if self._caps:  # other sub-lanes of the lane may wait because of their own cap
            self._hand_out()
        return turn

    async def _turn(self, turn: Turn, lane: str, sub: Hashable, size: int) -> float:
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._lanes.remove(lane, turn, size=size, sub=sub)
            else:  # the worker came at the same moment
                self._release(lane, sub, turn.result())
            raise

    def _hold(self, lane: str, sub: Hashable) -> float:
        self._free -= 1
        if self._caps:
            self._held[lane, sub] += 1
        return self._lanes.begin(lane)

    def _release(self, lane: str, sub: Hashable, began: float) -> None:
        self._free += 1
        self._lanes.end(lane, began)
        if self._caps:
            self._held[lane, sub] -= 1
            if not self._held[lane, sub]:
                del self._held[lane, sub]
        self._hand_out()

    def _hand_out(self) -> None:
        """Give free workers to the lanes whose turn it is."""
        while self._free and (lane := self._lanes.next(self._may_next)) is not None:
            sub = next(one for one in self._lanes.sub_lanes(lane) if self._may_sub(lane, one))
            turn, _ = self._lanes.pop(lane, sub)
            if not turn.done():  # else it is cancelled
                turn.set_result(self._hold(lane, sub))

    def _may(self, lane: str) -> bool:
        held = self._lanes.running(lane)
        return held < self._free and (not self._caps or held < self._caps(lane).lane)

    def _may_next(self, lane: str) -> bool:
        subs = self._lanes.sub_lanes(lane)
        return self._may(lane) and any(self._may_sub(lane, sub) for sub in subs)

    def _may_sub(self, lane: str, sub: Hashable) -> bool:
        return not self._caps or self._held[lane, sub] < self._caps(lane).sub
