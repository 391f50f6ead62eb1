"""Combines many small writes of a tenant; entries wait while a write is running.

Each write to the store takes a round trip and a journal sync, regardless of its size. Hundreds of
runs per second therefore share a few writes. No I/O of its own.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import Context
from itertools import islice
from operator import attrgetter
from typing import Generic, TypeVar

from libs.common.scheduling import Caps, FairScheduler
from libs.common.telemetry.logs import add_log_fields

T = TypeVar("T")
R = TypeVar("R")

MAX_ENTRIES_PER_WRITE = 200
"""Maximum entries per write."""
MAX_CHARACTERS_PER_WRITE = 8 * 1024**2
"""Maximum characters per write, unless a single entry has more."""
MAX_SHARED_ENTRIES = 16
"""Maximum waiting entries of a tenant that are written together with those of another tenant."""
RESULTS_PER_ITERATION = 50
"""Number of results that are set before the event loop runs other tasks."""
MAX_WRITERS, WRITERS_PER_TENANT = 8, 2
"""Maximum concurrent writes, in total and per tenant."""


class WriteBatcher(Generic[T, R]):
    """Passes batches of entries to `write`, which returns a result for each entry.

    A batch contains entries of one tenant, and of other tenants with few entries, so that many
    small tenants cost no more than one large tenant. The number of waiting entries has no limit
    here, because each entry belongs to a run, and runs are limited.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        tenant: Callable[[T], str] = attrgetter("tenant"),
        size: Callable[[T], int] = lambda _: 0,
        linger: float = 0.0,
    ) -> None:
        """`tenant` and `size` return the tenant of an entry and its number of characters.

        `name` is used in metrics. Fewer than `MAX_ENTRIES_PER_WRITE` entries of a tenant wait
        `linger` seconds for more.
        """
        self._write = write
        self._tenant = tenant
        self._size = size
        self._linger = linger
        self._waiting: dict[str, deque[tuple[T, asyncio.Future[R]]]] = {}
        self._scheduler = FairScheduler(
            name, MAX_WRITERS, caps=lambda _: Caps(WRITERS_PER_TENANT, sub=WRITERS_PER_TENANT)
        )
        self._writers: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, entry: T) -> R:
        """Write an entry with others and return its result; raise errors of `write`."""
        return await self._enqueue(entry)

    async def write_all(self, entries: Iterable[T]) -> list[R]:
        """Write several entries and return their results; raise errors of `write`."""
        return await asyncio.gather(*map(self._enqueue, entries))

    def _enqueue(self, entry: T) -> "asyncio.Future[R]":
        loop = asyncio.get_running_loop()
        done: asyncio.Future[R] = loop.create_future()
        tenant = self._tenant(entry)
        entries = self._waiting.setdefault(tenant, deque())
        entries.append((entry, done))
        writers = self._writers[tenant]
        lingers = self._linger and writers and len(entries) < MAX_ENTRIES_PER_WRITE
        if writers < WRITERS_PER_TENANT and not lingers:
            self._writers[tenant] += 1
            # A new context, because it also writes for other requests and traces.
            writer = loop.create_task(self._write_waiting(tenant), context=Context())
            self._tasks.add(writer)
            writer.add_done_callback(self._tasks.discard)
        return done

    async def _write_waiting(self, tenant: str) -> None:
        """Write batches until no entry of the tenant waits."""
        add_log_fields(tenant=tenant)
        while entries := self._waiting.get(tenant):
            if self._linger and len(entries) < MAX_ENTRIES_PER_WRITE:
                await asyncio.sleep(self._linger)
            async with self._scheduler.slot(tenant):
                if batch := self._pop_batch(tenant):
                    await self._write_batch(batch)
        self._writers[tenant] -= 1
        if not self._writers[tenant]:
            del self._writers[tenant]

    async def _write_batch(self, batch: Sequence[tuple[T, "asyncio.Future[R]"]]) -> None:
        try:
            results = await self._write([entry for entry, _ in batch])
        except Exception as error:  # noqa: BLE001 - raised by the callers of `write`
            for _, done in batch:
                if not done.done():
                    done.set_exception(error)
            return
        for number, ((_, done), result) in enumerate(zip(batch, results, strict=True)):
            if number % RESULTS_PER_ITERATION == RESULTS_PER_ITERATION - 1:
                await asyncio.sleep(0)
            if not done.done():
                done.set_result(result)

    def _pop_batch(self, tenant: str) -> list[tuple[T, "asyncio.Future[R]"]]:
        """Remove and return the next batch: entries of a tenant, then of small tenants."""
        first = islice(self._waiting.items(), MAX_ENTRIES_PER_WRITE)
        small = [name for name, entries in first if len(entries) <= MAX_SHARED_ENTRIES]
        batch: list[tuple[T, asyncio.Future[R]]] = []
        size = 0
        for name in (tenant, *small):
            waiting = self._waiting.get(name, deque())
            while waiting and len(batch) < MAX_ENTRIES_PER_WRITE:
                size += self._size(waiting[0][0])
                if batch and size > MAX_CHARACTERS_PER_WRITE:
                    return batch
                batch.append(waiting.popleft())
            if not waiting:
                self._waiting.pop(name, None)
        return batch
