"""Waiting for what another process does."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

PATIENCE = 30.0
"""Seconds that a test waits for what takes milliseconds on an idle machine."""
PAUSE, LONGEST_PAUSE = 0.02, 0.2
"""Seconds between two looks, at first and at most: most looks are requests to the platform."""

T = TypeVar("T")


async def until(probe: Callable[[], Awaitable[T]], seconds: float = PATIENCE) -> T:
    """Return the first true answer of `probe`; fail when none comes within `seconds`."""
    deadline, pause = time.monotonic() + seconds, PAUSE
    while True:
        answer = await probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s; the last answer was {answer!r}")
        await asyncio.sleep(pause)
        pause = min(pause * 1.25, LONGEST_PAUSE)
