"""Argon2id in threads of its own.

A hash takes some 30 ms of a core and 19 MiB (OWASP's password storage cheat sheet), so a storm
of log-ins must not take the machine: threads are few and give way to everything else, and
what they cannot do soon is refused.
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

R = TypeVar("R")

MEMORY_KIB, PASSES, LANES = 19_456, 2, 1
"""OWASP's first choice for Argon2id."""
QUEUE = 32
"""Hashes that may wait for each thread: about a second of work."""
RETRY_AFTER = 2.0
"""Seconds after which a refused caller may find the queue shorter."""
NICENESS = 10
"""How far the threads stand back behind others who want the core (Linux; 0 to 19)."""

_hasher = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)


class PasswordHashes:
    """Makes and checks hashes; at most `threads` at a time, and `QUEUE` waiting for each."""

    def __init__(self, threads: int = 0) -> None:
        threads = threads or max(1, (os.cpu_count() or 1) // 2)
        self._pool = ThreadPoolExecutor(threads, "argon2", initializer=_stand_back)
        self._free = threads * (1 + QUEUE)

    async def hash(self, password: str) -> str:
        """Make a hash; raise `Unavailable` when too many wait."""
        return await self._run(lambda: _hasher.hash(password))

    async def matches(self, password: str, stored: str | None) -> bool:
        """Tell whether `password` has the hash `stored`: the same work when there is none.

        Raises `Unavailable` when too many wait.
        """
        same = await self._run(lambda: self._verified(password, stored or _nobodys()))
        return same and stored is not None

    def outdated(self, stored: str) -> bool:
        """Tell whether a hash was made with other parameters than those of now."""
        return _hasher.check_needs_rehash(stored)

    def close(self) -> None:
        """End the threads; what waits is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _verified(self, password: str, stored: str) -> bool:
        try:
            return _hasher.verify(stored, password)
        except VerifyMismatchError:
            return False

    async def _run(self, work: Callable[[], R]) -> R:
        if self._free <= 0:
            raise Unavailable("too many log-ins at the moment", retry_after=RETRY_AFTER)
        self._free -= 1
        running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        running.add_done_callback(self._give_back)
        return await asyncio.shield(running)  # a caller that leaves makes no thread free

    def _give_back(self, _: "asyncio.Future[R]") -> None:
        self._free += 1


def _stand_back() -> None:
    """Lower the priority of this thread; Linux keeps one for each."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


@cache
def _nobodys() -> str:
    """A hash of no password that is known; it is made once in a process."""
    return _hasher.hash(secrets.token_urlsafe())
