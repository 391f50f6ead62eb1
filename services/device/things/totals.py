"""How many devices match a search: as they are up to a number, and beyond it lately counted."""

import time
from functools import partial
from hashlib import blake2b
from typing import Any

from libs.common.jobs import Beside
from libs.common.recent import Recent
from libs.common.store.mongo import Collection

EXACT = 10_000
"""Up to this a total is not remembered (some 5 ms); of a million it takes 0.3 s."""
FRESH = 10.0
"""Seconds after which a larger one is counted anew, beside the answer while it still is larger."""
OLDEST = 300.0
"""Seconds after which it is waited for."""
KEPT = 10_000
"""Searches whose totals are remembered."""


class Totals:
    """Counts devices; one per process."""

    def __init__(self, devices: Collection) -> None:
        self._devices = devices
        self._known: Recent[bytes, tuple[float, int]] = Recent(KEPT)
        self._counting = Beside()

    async def of(self, condition: dict[str, Any], hint: str | None = None) -> int:
        """How many devices meet a condition; above `EXACT` as it was a moment ago."""
        options: dict[str, Any] = {"hint": hint} if hint else {}
        key = blake2b(repr(condition).encode(), digest_size=16).digest()
        known = self._known.get(key)
        age = float("inf") if known is None else time.monotonic() - known[0]
        if known is None or age > OLDEST:
            return await self._count(key, condition, options)
        if age <= FRESH:
            return known[1]
        number = await self._devices.count_documents(condition, limit=EXACT, **options)
        if number < EXACT:
            return number
        self._counting.begin(key, partial(self._recount, key, condition, options))
        return known[1]

    async def _count(self, key: bytes, condition: dict[str, Any], options: dict[str, Any]) -> int:
        number = await self._devices.count_documents(condition, **options)
        if number >= EXACT:
            self._known.put(key, (time.monotonic(), number))
        return number

    async def _recount(
        self, key: bytes, condition: dict[str, Any], options: dict[str, Any]
    ) -> None:
        await self._count(key, condition, options)
