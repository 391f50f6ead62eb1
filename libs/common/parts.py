"""What each package of a service adds to its process, and how the process runs it."""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from litestar import Router

from libs.common.jobs import running
from libs.common.store.lease import Job, Leader
from libs.common.store.mongo import Database


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a package adds to its process."""

    routers: Sequence[Router] = ()
    """Its HTTP operations, with the dependencies of their handlers."""
    resources: Sequence[AbstractAsyncContextManager[object]] = ()
    """Opened in this order before tasks and jobs start, closed in reverse after they have ended."""
    tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Endless work of every replica."""
    jobs: Mapping[str, Job] = field(default_factory=dict)
    """Endless work of the replica that holds the lease, by name."""


def routers_of(parts: Sequence[Parts]) -> list[Router]:
    """Return the routers of all packages, in the order of the packages."""
    return [router for part in parts for router in part.routers]


@asynccontextmanager
async def running_parts(
    parts: Sequence[Parts], database: Database, lease: str, life: float = 10.0
) -> AsyncIterator[None]:
    """Open the resources, and run the tasks and jobs while the block runs.

    `life` is the life of the lease of the jobs in seconds (`Leader`).
    """
    jobs = {name: job for part in parts for name, job in part.jobs.items()}
    tasks = [task for part in parts for task in part.tasks]
    async with AsyncExitStack() as stack:
        for part in parts:
            for resource in part.resources:
                await stack.enter_async_context(resource)
        leader = Leader(database, lease, jobs, life)
        await stack.enter_async_context(running(*(task() for task in tasks), leader.run()))
        yield


@asynccontextmanager
async def start_and_stop(
    start: Callable[[], Awaitable[None]] | None = None,
    stop: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[None]:
    """Start an object when the block begins, and stop it at its end."""
    if start is not None:
        await start()
    try:
        yield
    finally:
        if stop is not None:
            await stop()
