"""Many small writes of a tenant in one: what comes while a write is under way goes with the next.

A write to the store costs a round trip and a sync of its journal, whatever it carries; a
process that runs hundreds of flows a second shares them. No I/O of its own.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import Context
from itertools import islice
from operator import attrgetter
from typing import Generic, TypeVar

from libs.common.scheduling import Caps, FairScheduler
from libs.common.telemetry.logs import name_lines

T = TypeVar("T")
R = TypeVar("R")

MOST = 200
"""Entries of one write."""
LARGEST = 8 * 1024**2
"""Characters of one write, unless one entry has more."""
FEW = 16
"""Entries of a tenant that may go in a write of another one."""
PACE = 50
"""Results that are given before other tasks of the process go on."""
WRITERS, EACH = 8, 2
"""Writes under way, and those of one tenant."""


class Batches(Generic[T, R]):
    """Feeds `write` with entries; it gives a result for each, in their order.

    A write has the entries of the tenant whose turn it is, and those of tenants with few: many such
    tenants cost no more than one. The entries that wait have no bound here: each belongs to a run,
    and these are bounded.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        tenant: Callable[[T], str] = attrgetter("tenant"),
        size: Callable[[T], int] = lambda _: 0,
    ) -> None:
        """`name` is for the metrics; `size` gives the characters of an entry that may be large."""
        self._write = write
        self._tenant = tenant
        self._size = size
        self._waiting: dict[str, deque[tuple[T, asyncio.Future[R]]]] = {}
        self._scheduler = FairScheduler(name, WRITERS, caps=lambda _: Caps(EACH, sub=EACH))
        self._writers: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, entry: T) -> R:
        """Write an entry with others, and give its result; raise what the write raised."""
        return await self._enter(entry)

    async def put_all(self, entries: Iterable[T]) -> list[R]:
        """The same for several; raise what one of their writes raised."""
        return await asyncio.gather(*map(self._enter, entries))

    def _enter(self, entry: T) -> "asyncio.Future[R]":
        loop = asyncio.get_running_loop()
        done: asyncio.Future[R] = loop.create_future()
        tenant = self._tenant(entry)
        self._waiting.setdefault(tenant, deque()).append((entry, done))
        if self._writers[tenant] < EACH:
            self._writers[tenant] += 1
            # In a context of its own: it writes for others' requests and traces, too.
            writer = loop.create_task(self._work(tenant), context=Context())
            self._tasks.add(writer)
            writer.add_done_callback(self._tasks.discard)
        return done

    async def _work(self, tenant: str) -> None:
        """Write until nothing of a tenant waits."""
        name_lines(tenant=tenant)
        while tenant in self._waiting:
            async with self._scheduler.slot(tenant):
                if batch := self._batch(tenant):
                    await self._write_batch(batch)
        self._writers[tenant] -= 1
        if not self._writers[tenant]:
            del self._writers[tenant]

    async def _write_batch(self, batch: Sequence[tuple[T, "asyncio.Future[R]"]]) -> None:
        try:
            results = await self._write([entry for entry, _ in batch])
        except Exception as error:  # noqa: BLE001 - raised again where it belongs
            for _, done in batch:
                if not done.done():
                    done.set_exception(error)
            return
        for number, ((_, done), result) in enumerate(zip(batch, results, strict=True)):
            if number % PACE == PACE - 1:
                await asyncio.sleep(0)
            if not done.done():
                done.set_result(result)

    def _batch(self, tenant: str) -> list[tuple[T, "asyncio.Future[R]"]]:
        """Take what goes in one write: entries of a tenant, then of those with few."""
        few = [one for one, some in islice(self._waiting.items(), MOST) if len(some) <= FEW]
        batch: list[tuple[T, asyncio.Future[R]]] = []
        size = 0
        for one in (tenant, *few):
            waiting = self._waiting.get(one, deque())
            while waiting and len(batch) < MOST:
                size += self._size(waiting[0][0])
                if batch and size > LARGEST:
                    return batch
                batch.append(waiting.popleft())
            if not waiting:
                self._waiting.pop(one, None)
        return batch
