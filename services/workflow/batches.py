"""Many small writes in one: what comes while a write is under way goes out with the next.

A write to the store costs a round trip and a sync of its journal, whatever it carries; a
process that runs hundreds of flows a second shares them. No I/O of its own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)

MOST = 500
"""Entries of one write."""
LARGEST = 8 * 1024**2
"""Characters of one write, unless one entry has more: nobody's many large ones hold up others."""
AT_ONCE = 2
"""Writes under way."""


class Batches(Generic[T, R]):
    """Feeds `write` with entries; it gives a result for each, in their order."""

    def __init__(
        self,
        write: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        size: Callable[[T], int] | None = None,
    ) -> None:
        """`size` gives the characters of an entry, where some may be large."""
        self._write = write
        self._size = size
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._writers: set[asyncio.Task[None]] = set()

    async def put(self, entry: T) -> R:
        """Write an entry with others, and give its result; raise what the write raised."""
        return await self._enter(entry)

    async def put_all(self, entries: Iterable[T]) -> list[R]:
        """The same for several; raise what one of their writes raised."""
        return await asyncio.gather(*map(self._enter, entries))

    def _enter(self, entry: T) -> "asyncio.Future[R]":
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, done))
        if len(self._writers) < AT_ONCE:
            loop = asyncio.get_running_loop()  # nobody's request or trace: it writes for all
            writer = loop.create_task(self._work(), context=Context())
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)
        return done

    async def _work(self) -> None:
        while self._waiting:
            number = self._fitting()
            batch, self._waiting = self._waiting[:number], self._waiting[number:]
            entries = [entry for entry, _ in batch]
            try:
                results = await self._write(entries)
            except Exception as error:  # noqa: BLE001 - raised again where it belongs
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error)
                continue
            for (_, done), result in zip(batch, results, strict=True):
                if not done.done():
                    done.set_result(result)

    def _fitting(self) -> int:
        """How many of those that wait go in one write."""
        first = self._waiting[:MOST]
        if self._size is None:
            return len(first)
        characters = 0
        for number, (entry, _) in enumerate(first):
            characters += self._size(entry)
            if number and characters > LARGEST:
                return number
        return len(first)
