"""Argon2id in threads of its own.

A hash takes some 30 ms of a core and 19 MiB (OWASP's password storage cheat sheet), so a storm
of log-ins must not use up the machine: threads are few and give way to everything else. Log-ins
come first: only as many new passwords as there are threads are hashed beside them, in turns of
tenants, and what cannot be hashed soon is refused.
"""

import asyncio
import os
import secrets
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from libs.common.errors import Unavailable
from libs.common.scheduling import FairScheduler

R = TypeVar("R")

MEMORY_KIB, PASSES, LANES = 19_456, 2, 1
"""OWASP's first choice for Argon2id."""
QUEUE = 128
"""New passwords of a tenant that may wait: four seconds of work."""
DEADLINE = 20.0
"""Seconds after which a new password that is not hashed yet is refused."""
RETRY_AFTER = 2.0
"""Seconds after which a refused caller may find the queue shorter."""
NICENESS = 10
"""How far the threads stand back behind others who want the core (Linux; 0 to 19)."""

_hasher = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)


class PasswordHashes:
    """Creates and verifies hashes, `threads` at a time."""

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads or max(1, (os.cpu_count() or 1) // 2)
        self._pool = ThreadPoolExecutor(self.threads, "argon2", initializer=_stand_back)
        self._new = FairScheduler("new passwords", self.threads, items=QUEUE)

    async def hash(self, tenant: str, password: str) -> str:
        """Create a hash in the tenant's turn; raise `LaneFull` or `Unavailable` under a storm."""
        try:
            async with self._new.slot(tenant, deadline=DEADLINE):
                return await self._run(lambda: _hasher.hash(password))
        except TimeoutError as error:
            reason = "too many new passwords at the moment"
            raise Unavailable(reason, retry_after=RETRY_AFTER) from error

    async def matches(self, password: str, stored: str | None) -> bool:
        """Return whether `password` has the hash `stored`: the same work when there is none.

        `Throttle.attempt` bounds how many callers do this at a time.
        """
        same = await self._run(lambda: self._verified(password, stored or _nobodys()))
        return same and stored is not None

    async def renewed(self, password: str, stored: str) -> str | None:
        """Return a new hash for one made with other parameters than now; None if it is not.

        `Throttle.attempt` bounds how many callers do this at a time.
        """
        if not _hasher.check_needs_rehash(stored):
            return None
        return await self._run(lambda: _hasher.hash(password))

    def close(self) -> None:
        """End the threads; what waits is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _verified(self, password: str, stored: str) -> bool:
        try:
            return _hasher.verify(stored, password)
        except VerifyMismatchError:
            return False

    async def _run(self, work: Callable[[], R]) -> R:
        running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])  # a caller that leaves makes no thread free
            raise


def _stand_back() -> None:
    """Lower the priority of this thread; Linux keeps one for each."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


@cache
def _nobodys() -> str:
    """A hash of no password that is known; it is made once in a process."""
    return _hasher.hash(secrets.token_urlsafe())
