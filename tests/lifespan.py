"""Runs an application's lifespan in one task, as a server does; a fixture ends in another."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from litestar import Litestar

from services.device.telemetry.direct_ingest import DirectIngest


@contextlib.asynccontextmanager
async def running(app: Litestar | DirectIngest) -> AsyncIterator[None]:
    """Run the lifespan of `app` around the block; raise what its start raises."""
    started, stop = asyncio.Event(), asyncio.Event()
    inner: Any = app.app if isinstance(app, DirectIngest) else app

    async def live() -> None:
        async with inner.lifespan():
            started.set()
            await stop.wait()

    task = asyncio.ensure_future(live())
    waiting = asyncio.ensure_future(started.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        waiting.cancel()
        await task
    yield
    stop.set()
    await task
