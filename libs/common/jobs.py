"""Endless jobs of a process."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

AGAIN = 0.5
"""Seconds after which a task that has not ended is cancelled once more."""

log = logging.getLogger(__name__)


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


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks until they have ended, however they end.

    Once is not enough: nats-py swallows a cancellation that comes while it writes.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN)


def _end_process(job: "asyncio.Task[None]") -> None:
    if not job.cancelled() and job.exception() is not None:
        log.critical("a job failed, the process ends", exc_info=job.exception())
        signal.raise_signal(signal.SIGTERM)
