"""Passwords of users: hashing in threads, and a throttle of login attempts.

A hash with Argon2id takes about 30 ms of one core and 19 MiB (OWASP's password storage cheat
sheet). Few low-priority threads compute hashes, so that many logins at once do not exhaust the
machine. Logins have priority: only as many new passwords as there are threads are hashed
concurrently, fairly by tenant, and a new password that waits too long is rejected.

The throttle limits guesses across all replicas with two token buckets of attempts: one per account,
existing or not, and one per address. When an account's bucket is empty, one attempt is allowed
every `SECONDS_PER_ACCOUNT_ATTEMPT` seconds, so nobody can lock an account permanently. A correct
password refills the account's bucket. Attempts are counted before they are verified, so concurrent
attempts cannot bypass the limit. Attempts of one account run one at a time, so that concurrent
correct ones are not counted as failures. Attempts are scheduled fairly by tenant and account;
unknown tenants share one lane.
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
from libs.common.limits import TokenBuckets, address_key
from libs.common.scheduling import Caps, FairScheduler
from services.auth.accounts.users import normalize_email

R = TypeVar("R")

MEMORY_KIB, PASSES, LANES = 19_456, 2, 1
"""Parameters that OWASP recommends first for Argon2id."""
MAX_WAITING_HASHES_PER_TENANT = 128
"""Maximum new passwords of a tenant that wait to be hashed: four seconds of hashing."""
HASH_DEADLINE_SECONDS = 20.0
"""Seconds after which a waiting new password is rejected."""
HASH_RETRY_SECONDS = 2.0
"""Seconds after which a rejected caller should retry."""
THREAD_NICENESS = 10
"""Niceness of the threads (Linux; 0 to 19)."""

_hasher = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)


class PasswordHasherPool:
    """Creates and verifies hashes in `threads` threads."""

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads or max(1, (os.cpu_count() or 1) // 2)
        self._pool = ThreadPoolExecutor(self.threads, "argon2", initializer=_lower_thread_priority)
        self._new = FairScheduler(
            "new passwords", self.threads, items=MAX_WAITING_HASHES_PER_TENANT
        )

    async def hash(self, tenant: str, password: str) -> str:
        """Return a hash, scheduled by tenant; raise `LaneFull` or `Unavailable` if busy."""
        try:
            async with self._new.slot(tenant, deadline=HASH_DEADLINE_SECONDS):
                return await self._run_in_thread(lambda: _hasher.hash(password))
        except TimeoutError as error:
            reason = "too many new passwords at the moment"
            raise Unavailable(reason, retry_after=HASH_RETRY_SECONDS) from error

    async def matches(self, password: str, stored: str | None) -> bool:
        """Return whether `password` has the hash `stored`.

        It takes the same time if `stored` is None. `LoginThrottle.attempt` limits concurrent calls.
        """
        is_same = await self._run_in_thread(lambda: self._verify(password, stored or _dummy_hash()))
        return is_same and stored is not None

    async def rehash_if_outdated(self, password: str, stored: str) -> str | None:
        """Return a new hash of `password` if `stored` has outdated parameters, else None.

        `LoginThrottle.attempt` limits concurrent calls.
        """
        if not _hasher.check_needs_rehash(stored):
            return None
        return await self._run_in_thread(lambda: _hasher.hash(password))

    def close(self) -> None:
        """Stop the threads and drop waiting passwords."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _verify(self, password: str, stored: str) -> bool:
        try:
            return _hasher.verify(stored, password)
        except VerifyMismatchError:
            return False

    async def _run_in_thread(self, function: Callable[[], R]) -> R:
        running = asyncio.get_running_loop().run_in_executor(self._pool, function)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])  # the thread is busy even if the caller is cancelled
            raise


def _lower_thread_priority() -> None:
    """Lower the priority of this thread. Linux has a priority per thread."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        niceness = max(THREAD_NICENESS, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, niceness)


@cache
def _dummy_hash() -> str:
    """Return the hash of a random password, created once per process."""
    return _hasher.hash(secrets.token_urlsafe())


ACCOUNT_FAILURE_BURST = 10
"""Consecutive failures of an account that are allowed without a pause."""
ADDRESS_FAILURE_BURST = 100
"""Failures from an address that are allowed at once, because a whole office may share it."""
SECONDS_PER_ACCOUNT_ATTEMPT = 90.0
"""Seconds in which an account's bucket gets one attempt back: ten in 15 minutes."""
MAX_WAITING_LOGINS_PER_TENANT = 128
"""Maximum waiting login attempts of a tenant: four seconds of hashing."""
LOGIN_DEADLINE_SECONDS = 10.0
"""Maximum seconds of an attempt, including waiting."""
LOGIN_RETRY_SECONDS = 2.0
"""Seconds after which a rejected attempt should be retried."""


@dataclass
class LoginAttempt:
    """A login attempt. The caller sets whether the password was correct."""

    is_correct: bool = False


class LoginThrottle:
    """Limits login attempts of all endpoints that verify passwords."""

    def __init__(self, buckets: TokenBuckets, threads: int) -> None:
        """Run up to `2 * threads + 2` attempts at once, as they also wait for stores."""
        self._buckets = buckets
        maximum = 2 * threads + 2
        self._turns = FairScheduler(
            "log-ins",
            maximum,
            items=MAX_WAITING_LOGINS_PER_TENANT,
            caps=lambda _: Caps(lane=maximum, sub=1),
        )

    @asynccontextmanager
    async def attempt(
        self, tenant: str, email: str, address: str, *, tenant_exists: bool = True
    ) -> AsyncIterator[LoginAttempt]:
        """Allow one attempt in the block. With an exception, the attempt does not count.

        Unknown tenants (`tenant_exists` is False) share one lane. Raises `TooManyRequests` if the
        attempt is not allowed now, `LaneFull` if too many attempts of the tenant wait, and
        `Unavailable` after `LOGIN_DEADLINE_SECONDS`.
        """
        account = _account_key(tenant, email)
        lane = tenant if tenant_exists else ""
        try:
            async with self._turns.slot(lane, sub=account, deadline=LOGIN_DEADLINE_SECONDS):
                await self._count_attempt(account, address)
                attempt = LoginAttempt()
                try:
                    yield attempt
                except Exception:
                    await self._return_permit(account, ACCOUNT_FAILURE_BURST)
                    await self._return_address_permit(address)
                    raise
                if attempt.is_correct:
                    await self._buckets.fill(account)
                    await self._return_address_permit(address)
        except TimeoutError as error:
            reason = "too many logins at the moment"
            raise Unavailable(reason, retry_after=LOGIN_RETRY_SECONDS) from error

    async def _count_attempt(self, account: str, address: str) -> None:
        """Count an attempt, first by address, so a blocked address costs accounts nothing."""
        if address:
            await self._take_permit(_address_key(address), ADDRESS_FAILURE_BURST)
        await self._take_permit(account, ACCOUNT_FAILURE_BURST)

    async def _return_address_permit(self, address: str) -> None:
        if address:
            await self._return_permit(_address_key(address), ADDRESS_FAILURE_BURST)

    async def _take_permit(self, key: str, burst: int) -> None:
        granted, wait = await self._buckets.take_permits(
            key, rate=_permits_per_second(burst), burst=burst
        )
        if not granted:
            raise TooManyRequests("too many failed logins; try again later", retry_after=wait)

    async def _return_permit(self, key: str, burst: int) -> None:
        await self._buckets.take_permits(
            key, rate=_permits_per_second(burst), burst=burst, number=-1
        )


def _permits_per_second(burst: int) -> float:
    """Return the attempts per second that refill a bucket within 15 minutes."""
    return burst / ACCOUNT_FAILURE_BURST / SECONDS_PER_ACCOUNT_ATTEMPT


def _account_key(tenant: str, email: str) -> str:
    """Return the bucket key of an account.

    It contains a hash, because email addresses can be long and users mistype passwords in this
    field.
    """
    digest = hashlib.sha256(f"{tenant} {normalize_email(email)}".encode()).hexdigest()
    return f"account:{digest}"


def _address_key(address: str) -> str:
    return f"sign-in:{address_key(address)}"
