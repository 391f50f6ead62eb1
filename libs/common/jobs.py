"""Background jobs and cancellation of tasks."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

CANCEL_INTERVAL_SECONDS = 0.5
"""Seconds after which an unfinished task is cancelled again."""
RETRY_PAUSE_SECONDS = 0.05
"""Seconds between two attempts of `retry`."""


def seconds_to_tick(period: float) -> float:
    """Return the seconds to the next multiple of `period` s on the clock of this machine.

    Timers of all processes then end together, so that MongoDB and NATS wake once for all. The
    result is at least a tenth of `period`, because a timer may end shortly before the tick.
    """
    if not period:
        return 0.0
    seconds = period - time.monotonic() % period
    return seconds if seconds > period / 10 else seconds + period


@asynccontextmanager
async def run_in_background(*jobs: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless jobs until the block ends; a failing job ends the process.

    Without a job, the process would not do its work but appear ready. Its supervisor restarts it.
    """
    tasks = [asyncio.ensure_future(job) for job in jobs]
    for task in tasks:
        task.add_done_callback(_end_process)
    try:
        yield
    finally:
        await cancel_and_wait(*tasks)


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, at most `seconds`; None waits for ever.

    A cancellation that arrives together with the event is honoured; before Python 3.12,
    `asyncio.wait_for` swallows it.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks until they have ended, ignoring their results.

    One cancellation does not suffice: libraries swallow a cancellation that arrives together with
    the awaited result. If the caller is cancelled here, wait for the tasks to end, then re-raise.
    Otherwise a second cancellation of the caller would leave the tasks running.
    """
    pending = set(tasks)
    cancelled: asyncio.CancelledError | None = None
    while pending:
        for task in pending:
            task.cancel()
        try:
            await asyncio.wait(pending, timeout=CANCEL_INTERVAL_SECONDS)
        except asyncio.CancelledError as error:
            cancelled = error
        pending = {task for task in pending if not task.done()}
    if cancelled is not None:
        raise cancelled


async def run_until_first_ends(*jobs: Coroutine[Any, Any, None]) -> None:
    """Run jobs until one ends, cancel the others, and raise the error of the first."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel_and_wait(*tasks)


async def run_with_timeout(seconds: float, job: Coroutine[Any, Any, T]) -> T:
    """Return the result of `job`; raise `TimeoutError` after `seconds`.

    The job has ended in either case. `asyncio.timeout` cancels only once, and waits for ever if a
    library swallows the cancellation (`cancel_and_wait`).
    """
    task = asyncio.ensure_future(job)
    try:
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            raise TimeoutError
    finally:
        await cancel_and_wait(task)
    return task.result()


class NamedTasks:
    """Background tasks, at most one per name; failures are logged."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        """Return the number of running tasks."""
        return len(self._running)

    def start(
        self, name: Hashable, job: Callable[[], Coroutine[Any, Any, None]]
    ) -> "asyncio.Task[None] | None":
        """Start `job`, unless a task with this name is running; then return None."""
        before = self._running.get(name)
        if before is not None and not before.done():
            return None
        task = self._running[name] = asyncio.ensure_future(job())
        task.add_done_callback(partial(self._forget_task, name))
        return task

    async def stop(self) -> None:
        """Cancel all running tasks."""
        if self._running:
            await cancel_and_wait(*self._running.values())

    def _forget_task(self, name: Hashable, task: "asyncio.Task[None]") -> None:
        if self._running.get(name) is task:
            del self._running[name]
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", name, exc_info=task.exception())


async def retry(attempt: Callable[[], Awaitable[T]], *errors: type[Exception]) -> T:
    """Return the result of the first `attempt` that raises none of `errors`.

    The caller limits the time.
    """
    while True:
        try:
            return await attempt()
        except errors:
            await asyncio.sleep(RETRY_PAUSE_SECONDS)


async def gather_limited(maximum: int, calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return the results of calls in order; at most `maximum` calls run concurrently.

    Only for calls of a single request or turn, which belong to one tenant. Raises the first error
    and cancels the other calls.
    """
    listed, results = list(calls), dict[int, T]()
    waiting = enumerate(listed)

    async def run_calls() -> None:
        for number, call in waiting:
            results[number] = await call()

    tasks = [asyncio.ensure_future(run_calls()) for _ in listed[:maximum]]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel_and_wait(*tasks)
    return [results[number] for number in sorted(results)]


def end_process(reason: str, error: BaseException | None = None) -> None:
    """Log the reason and end this process with SIGTERM."""
    log.critical("%s; the process ends", reason, exc_info=error)
    signal.raise_signal(signal.SIGTERM)


def _end_process(job: "asyncio.Task[None]") -> None:
    if not job.cancelled() and job.exception() is not None:
        end_process("a job failed", job.exception())
