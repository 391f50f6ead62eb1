"""Readiness: Redis and every service, asked at most once a second."""

import asyncio
import time
from collections.abc import Mapping

from aiohttp import ClientError, ClientSession, ClientTimeout
from yarl import URL

from libs.common.http.app import CHECK_TIMEOUT, VERSION_HEADER, Check, states_of

CACHED = 1.0
"""Seconds for which an answer is given again."""


def service_check(session: ClientSession, base: URL) -> Check:
    """Make the check that a service says it is ready; it tells the version of the service."""

    timeout = ClientTimeout(total=CHECK_TIMEOUT)

    async def check() -> str | None:
        async with session.get(base / "readyz", timeout=timeout) as answer:
            if answer.status != 200:  # noqa: PLR2004 - the number is the name
                raise ClientError(f"/readyz answered {answer.status}")
            return answer.headers.get(VERSION_HEADER)

    return check


class Readiness:
    """The state of each part: `ok`, of a service `ok: 0.2.0` with its version, or why not."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._states: dict[str, str] = {}
        self._at = float("-inf")
        self._lock = asyncio.Lock()

    async def states(self) -> dict[str, str]:
        """The state of every part, not older than a second."""
        async with self._lock:
            if time.monotonic() - self._at > CACHED:
                self._states = await states_of("gateway", self._checks)
                self._at = time.monotonic()
            return self._states
