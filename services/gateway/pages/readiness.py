"""Readiness: Redis and every service, asked at most once a second."""

import asyncio
import time
from collections.abc import Mapping

from aiohttp import ClientError, ClientSession, ClientTimeout
from yarl import URL

from libs.common.http import Check
from libs.common.store.redis import Redis

CACHED = 1.0
"""Seconds for which an answer is given again."""
TIMEOUT = 2.0
"""Seconds that a part gets to say that it is ready."""


def redis_check(redis: Redis) -> Check:
    """Make the check that Redis answers."""

    async def check() -> None:
        await redis.ping()

    return check


def service_check(session: ClientSession, base: URL) -> Check:
    """Make the check that a service says it is ready."""

    async def check() -> None:
        async with session.get(base / "readyz", timeout=ClientTimeout(total=TIMEOUT)) as answer:
            if answer.status != 200:  # noqa: PLR2004 - the number is the name
                raise ClientError(f"/readyz answered {answer.status}")

    return check


class Readiness:
    """The state of each part: `ok`, or why not."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._states: dict[str, str] = {}
        self._at = float("-inf")
        self._lock = asyncio.Lock()

    async def states(self) -> dict[str, str]:
        """The state of every part, not older than a second."""
        async with self._lock:
            if time.monotonic() - self._at > CACHED:
                found = await asyncio.gather(*map(_state, self._checks.values()))
                self._states = dict(zip(self._checks, found, strict=True))
                self._at = time.monotonic()
            return self._states


async def _state(check: Check) -> str:
    try:
        async with asyncio.timeout(TIMEOUT):
            await check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the part is not ready
        return f"not ready: {type(error).__name__}: {error}"
    return "ok"
