"""Passwords of people: hashes, made in threads of their own, and a throttle of guesses.

A hash with Argon2id takes some 30 ms of a core and 19 MiB (OWASP's password storage cheat sheet),
so a storm of log-ins must not use up the machine: threads are few and give way to everything else.
Log-ins come first: only as many new passwords as there are threads are hashed beside them, in turns
of tenants, and what cannot be hashed soon is refused.

The throttle slows down guesses on all replicas together, with two buckets of attempts: one of the
account, whether it exists or not, and one of the address.
When the account's is empty there is one attempt in `PAUSE` seconds, by whomever: nobody can
lock an account for good. A right password fills its bucket again. Attempts are counted before
they are made, so that many at once are no way around; those of one account take turns, so that
many right ones at once are not counted against it. Tenants take turns at the attempts of a
process, and so do the accounts of each; names of tenants that do not exist share one lane.
"""

import asyncio
import hashlib
import os
import secrets
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from libs.common.errors import TooManyRequests, Unavailable
from libs.common.limits import TokenBuckets, counted_address
from libs.common.scheduling import Caps, FairScheduler
from services.auth.accounts.users import email_key

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

        `LoginThrottle.attempt` bounds how many callers do this at a time.
        """
        same = await self._run(lambda: self._verified(password, stored or _nobodys()))
        return same and stored is not None

    async def renewed(self, password: str, stored: str) -> str | None:
        """Return a new hash for one made with other parameters than now; None if it is not.

        `LoginThrottle.attempt` bounds how many callers do this at a time.
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


ATTEMPTS = 10
"""Failures in a row that an account takes without a pause."""
ADDRESS_ATTEMPTS = 100
"""The same for an address, behind which a whole office may be."""
PAUSE = 90.0
"""Seconds until an empty bucket of an account has one attempt more: ten in 15 minutes."""
WAITING = 128
"""Attempts of a tenant that wait for their turn: four seconds of hashing."""
LOGIN_DEADLINE = 10.0
"""Seconds that an attempt may wait and take."""
LOGIN_RETRY_AFTER = 2.0
"""Seconds after which one that was refused may find its turn."""


@dataclass
class Attempt:
    """An attempt in the making; whoever makes it says whether the password was right."""

    right: bool = False


class LoginThrottle:
    """Lets attempts be made; one for all doors where passwords are checked."""

    def __init__(self, buckets: TokenBuckets, threads: int) -> None:
        """`threads` verify passwords; an attempt also waits for stores, so twice as many run."""
        self._buckets = buckets
        most = 2 * threads + 2
        self._turns = FairScheduler(
            "log-ins", most, items=WAITING, caps=lambda _: Caps(lane=most, sub=1)
        )

    @asynccontextmanager
    async def attempt(
        self, tenant: str, email: str, address: str, *, exists: bool = True
    ) -> AsyncIterator[Attempt]:
        """Make an attempt inside the block; one that raises, because it was not made, is forgotten.

        `exists` says whether there is such a tenant. Raises `TooManyRequests` when the attempt may
        not be made now, `LaneFull` when too many of the tenant wait, and `Unavailable` when it has
        not ended in time.
        """
        account = _account(tenant, email)
        lane = tenant if exists else ""
        try:
            async with self._turns.slot(lane, sub=account, deadline=LOGIN_DEADLINE):
                await self._count(account, address)
                attempt = Attempt()
                try:
                    yield attempt
                except Exception:
                    await self._give_back(account, ATTEMPTS)
                    await self._forgive(address)
                    raise
                if attempt.right:
                    await self._buckets.fill(account)
                    await self._forgive(address)
        except TimeoutError as error:
            reason = "too many log-ins at the moment"
            raise Unavailable(reason, retry_after=LOGIN_RETRY_AFTER) from error

    async def _count(self, account: str, address: str) -> None:
        """Count an attempt; an address that is refused uses up no attempts of an account."""
        if address:
            await self._take(_address(address), ADDRESS_ATTEMPTS)
        await self._take(account, ATTEMPTS)

    async def _forgive(self, address: str) -> None:
        if address:
            await self._give_back(_address(address), ADDRESS_ATTEMPTS)

    async def _take(self, key: str, burst: int) -> None:
        granted, wait = await self._buckets.take(key, rate=_rate(burst), burst=burst)
        if not granted:
            raise TooManyRequests("too many failed log-ins; wait a little", retry_after=wait)

    async def _give_back(self, key: str, burst: int) -> None:
        await self._buckets.take(key, rate=_rate(burst), burst=burst, wanted=-1)


def _rate(burst: int) -> float:
    """Attempts per second that come back; all of them in 15 minutes."""
    return burst / ATTEMPTS / PAUSE


def _account(tenant: str, email: str) -> str:
    """The e-mail address is hashed: it may be long, and mistyped passwords land in this field."""
    digest = hashlib.sha256(f"{tenant} {email_key(email)}".encode()).hexdigest()
    return f"account:{digest}"


def _address(address: str) -> str:
    return f"sign-in:{counted_address(address)}"
