"""Endless jobs of a process."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

AGAIN = 0.5
"""Seconds after which a task that has not ended is cancelled once more."""
RETRY_PAUSE = 0.05
"""Seconds between two attempts of `retry`."""


@asynccontextmanager
async def running(*jobs: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless jobs beside the service; end them with it, and it with one that fails.

    A process that serves and does not work would look ready; one that ends is started again.
    """
    tasks = [asyncio.ensure_future(job) for job in jobs]
    for task in tasks:
        task.add_done_callback(_end_process)
    try:
        yield
    finally:
        await ended(*tasks)


async def happened(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, at most so many seconds; None is for ever.

    A cancellation that comes together with the event counts; `asyncio.wait_for`, before Python
    3.12, swallows it.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks until they have ended, however they end.

    Once is not enough: libraries swallow a cancellation that comes together with what they wait
    for. Whoever is cancelled while it waits here goes on until they have ended, and then is: else
    the second cancellation of a task would leave behind those that it is ending.
    """
    pending = set(tasks)
    cancelled: asyncio.CancelledError | None = None
    while pending:
        for task in pending:
            task.cancel()
        try:
            await asyncio.wait(pending, timeout=AGAIN)
        except asyncio.CancelledError as error:
            cancelled = error
        pending = {task for task in pending if not task.done()}
    if cancelled is not None:
        raise cancelled


async def together(*jobs: Coroutine[Any, Any, None]) -> None:
    """Run jobs until one ends, which ends the others; raise what it has ended with."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await ended(*tasks)


async def within(seconds: float, job: Coroutine[Any, Any, T]) -> T:
    """The result of `job`, which has ended when this returns or raises.

    Raises `TimeoutError` when it takes longer. `asyncio.timeout` cancels only once, and so waits
    for ever when a library swallows that (`ended`).
    """
    task = asyncio.ensure_future(job)
    try:
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            raise TimeoutError
    finally:
        await ended(task)
    return task.result()


class Beside:
    """Tasks beside what a service does, one for each name; a failure is logged."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        """How many are running."""
        return len(self._running)

    def begin(
        self, name: Hashable, job: Callable[[], Coroutine[Any, Any, None]]
    ) -> "asyncio.Task[None] | None":
        """Begin `job` unless the one of this name is still running; then it is None."""
        before = self._running.get(name)
        if before is not None and not before.done():
            return None
        task = self._running[name] = asyncio.ensure_future(job())
        task.add_done_callback(partial(self._ended, name))
        return task

    async def stop(self) -> None:
        """Cancel what is running."""
        if self._running:
            await ended(*self._running.values())

    def _ended(self, name: Hashable, task: "asyncio.Task[None]") -> None:
        if self._running.get(name) is task:
            del self._running[name]
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", name, exc_info=task.exception())


async def retry(attempt: Callable[[], Awaitable[T]], *errors: type[Exception]) -> T:
    """Return the result of the first `attempt` that raises none of `errors`.

    The caller bounds the time.
    """
    while True:
        try:
            return await attempt()
        except errors:
            await asyncio.sleep(RETRY_PAUSE)


async def gather_limited(most: int, calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return the results of calls in their order; at most `most` run at a time.

    For the calls of one request or turn: tenants share nothing here. Raises what the first that
    fails raises, and cancels the others.
    """
    waiting, results = enumerate(calls), dict[int, T]()

    async def work() -> None:
        for number, call in waiting:
            results[number] = await call()

    tasks = [asyncio.ensure_future(work()) for _ in range(most)]
    try:
        await asyncio.gather(*tasks)
    finally:
        await ended(*tasks)
    return [results[number] for number in sorted(results)]


def end_process(reason: str, error: BaseException | None = None) -> None:
    """End this process in order, because it could not do its work any more; log why."""
    log.critical("%s, the process ends", reason, exc_info=error)
    signal.raise_signal(signal.SIGTERM)


def _end_process(job: "asyncio.Task[None]") -> None:
    if not job.cancelled() and job.exception() is not None:
        end_process("a job failed", job.exception())
