"""The event loop's time, which the sockets of tenants share."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from libs.common.scheduling import FairScheduler

STEPS = 16
"""Steps of all sockets (a frame that is read or sent) between two looks of the event loop at what
else there is to do; one tenant alone has half of them."""
MOST_STEPS = 100_000
"""Steps of a tenant that wait: each socket has two at most."""
SLICE = 0.005
"""Seconds for which a long job holds the event loop."""

Pause = Callable[[], Awaitable[None]]


def socket_scheduler() -> FairScheduler:
    """Return the scheduler of a process's sockets; a step ends with `asyncio.sleep(0)`."""
    return FairScheduler("live", STEPS, items=MOST_STEPS)


def slices() -> Pause:
    """Return a function that lets other tasks run when its caller has used up a slice."""
    until = time.monotonic() + SLICE

    async def pause() -> None:
        nonlocal until
        if time.monotonic() >= until:
            await asyncio.sleep(0)
            until = time.monotonic() + SLICE

    return pause
