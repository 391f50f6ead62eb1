"""Who is refused again and again waits for the refusal, longer each time.

A caller that does not heed `Retry-After` would make the gateway do nothing but refuse. So the
answer is held back, and its connection asks for nothing meanwhile.
"""

import asyncio
import time

from libs.common.limits.meter import BURST, Meter

AT_ONCE = 2.0
"""Refusals per second of one caller that are told at once; `meter.BURST` seconds' worth may come
together."""
LONGEST = 5.0
"""Seconds that a refusal is held back at most."""
MOST = 10_000
"""Refusals that are held back at a time; more are told at once."""


class Patience:
    """Holds refusals back."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._held = 0

    async def wait(self, caller: str) -> None:
        """Return when a refusal of this caller may be told."""
        pause = self._pause(caller, time.monotonic())
        if not pause or self._held >= MOST:
            return
        self._held += 1
        try:
            await asyncio.sleep(pause)
        finally:
            self._held -= 1

    def _pause(self, caller: str, now: float) -> float:
        pause = self._meter.lacking(caller, 1, AT_ONCE, now, BURST)
        if pause < LONGEST:
            self._meter.take(caller, 1)
        return min(pause, LONGEST)
