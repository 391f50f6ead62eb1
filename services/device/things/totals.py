"""How many devices match a search: as they are up to a number, and beyond it lately counted."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import blake2b
from typing import Any, Generic, TypeVar

from libs.common.jobs import Beside
from libs.common.recent import Recent
from libs.common.store.mongo import Collection

T = TypeVar("T")

EXACT = 10_000
"""Up to this a total is not remembered (some 5 ms); of a million it takes 0.3 s."""
FRESH = 10.0
"""Seconds after which a larger one is counted anew, beside the answer while it still is larger."""
OLDEST = 300.0
"""Seconds after which it is waited for."""


class Totals(Generic[T]):
    """Counts devices; one of a kind per process.

    `count` is given a condition, and `hint` where there is one; `size` says how many it counted.
    The totals of `kept` searches are remembered.
    """

    def __init__(
        self,
        devices: Collection,
        count: Callable[..., Awaitable[T]],
        size: Callable[[T], int],
        kept: int,
    ) -> None:
        self._devices = devices
        self._counted = count
        self._size = size
        self._known: Recent[bytes, tuple[float, T]] = Recent(kept)
        self._counting = Beside()

    async def of(
        self, condition: dict[str, Any], hint: str | None = None, *, anew: bool = False
    ) -> T:
        """The devices that meet a condition; above `EXACT` as of a moment ago, unless `anew`."""
        options: dict[str, Any] = {"hint": hint} if hint else {}
        key = blake2b(repr(condition).encode(), digest_size=16).digest()
        known = self._known.get(key)
        age = float("inf") if known is None or anew else time.monotonic() - known[0]
        if known is None or age > OLDEST:
            return await self._count(key, condition, options)
        if age > FRESH:
            if await self._devices.count_documents(condition, limit=EXACT, **options) < EXACT:
                return await self._count(key, condition, options)
            self._counting.begin(key, partial(self._recount, key, condition, options))
        return known[1]

    async def _count(self, key: bytes, condition: dict[str, Any], options: dict[str, Any]) -> T:
        found = await self._counted(condition, **options)
        if self._size(found) >= EXACT:
            self._known.put(key, (time.monotonic(), found))
        else:
            self._known.pop(key)
        return found

    async def _recount(
        self, key: bytes, condition: dict[str, Any], options: dict[str, Any]
    ) -> None:
        await self._count(key, condition, options)
