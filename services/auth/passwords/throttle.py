"""Slows down whoever guesses passwords, on all replicas together.

Two buckets of attempts: one of the account, whether it exists or not, and one of the address.
When the account's is empty there is one attempt in `PAUSE` seconds, by whomever: nobody can
lock an account for good. A right password fills its bucket again. Attempts are counted before
they are made, so that many at once are no way around; those of one account take turns, so that
many right ones at once are not counted against it.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from libs.common.errors import TooManyRequests, Unavailable
from libs.common.limits import TokenBuckets, counted_address
from services.auth.accounts.users import email_key

ATTEMPTS = 10
"""Failures in a row that an account takes without a pause."""
ADDRESS_ATTEMPTS = 100
"""The same for an address, behind which a whole office may be."""
PAUSE = 90.0
"""Seconds until an empty bucket of an account has one attempt more: ten in 15 minutes."""
WAITING = 64
"""Attempts of a process that are made or wait for their turn: two seconds of hashing."""
RETRY_AFTER = 2.0
"""Seconds after which one that was refused may find its turn."""


@dataclass
class Attempt:
    """An attempt in the making; whoever makes it says whether the password was right."""

    right: bool = False


class Throttle:
    """Lets attempts be made; one for all doors where passwords are checked."""

    def __init__(self, buckets: TokenBuckets) -> None:
        self._buckets = buckets
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting = 0

    @asynccontextmanager
    async def attempt(self, tenant: str, email: str, address: str) -> AsyncIterator[Attempt]:
        """Make an attempt inside the block; one that raises, because it was not made, is forgotten.

        Raises `TooManyRequests` when it may not be made now, `Unavailable` when too many wait.
        """
        if self._waiting >= WAITING:
            raise Unavailable("too many log-ins at the moment", retry_after=RETRY_AFTER)
        account = _account(tenant, email)
        turn = self._turns.setdefault(account, asyncio.Lock())
        self._waiting += 1
        try:
            async with turn:
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
        finally:
            self._waiting -= 1

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
