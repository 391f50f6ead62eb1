"""How many devices match a search: exact up to a number, and beyond it lately counted."""

import time
from functools import partial
from hashlib import blake2b
from typing import Any

from libs.common.jobs import Beside
from libs.common.recent import Recent
from libs.common.store.mongo import Collection

EXACT = 10_000
"""Up to this a total is always exact (some 5 ms); of a million it takes 0.3 s."""
FRESH = 10.0
"""Seconds after which a larger total is counted anew, beside the answer."""
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
        number = await self._devices.count_documents(condition, limit=EXACT, **options)
        if number < EXACT:
            return number
        key = blake2b(repr(condition).encode(), digest_size=16).digest()
        known = self._known.get(key)
        moment = time.monotonic()
        if known is None or known[0] + OLDEST < moment:
            return await self._count(key, condition, options)
        if known[0] + FRESH < moment:
            self._counting.begin(key, partial(self._recount, key, condition, options))
        return known[1]

    async def _count(self, key: bytes, condition: dict[str, Any], options: dict[str, Any]) -> int:
        number = await self._devices.count_documents(condition, **options)
        self._known.put(key, (time.monotonic(), number))
        return number

    async def _recount(
        self, key: bytes, condition: dict[str, Any], options: dict[str, Any]
    ) -> None:
        await self._count(key, condition, options)
