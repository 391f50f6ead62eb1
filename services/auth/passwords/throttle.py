"""Slows down whoever guesses passwords, on all replicas together.

Two buckets of attempts: one of the account, whether it exists or not, and one of the address.
When the account's is empty there is one attempt in `PAUSE` seconds, by whomever: nobody can
lock an account for good. A right password fills its bucket again. Attempts are counted before
they are made, so that many at once are no way around; those of one account take turns, so that
many right ones at once are not counted against it. Tenants take turns at the attempts of a
process, and so do the accounts of each; names of tenants that do not exist share one lane.
"""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from libs.common.errors import TooManyRequests, Unavailable
from libs.common.limits import TokenBuckets, counted_address
from libs.common.scheduling import Caps, FairScheduler
from services.auth.accounts.users import email_key

ATTEMPTS = 10
"""Failures in a row that an account takes without a pause."""
ADDRESS_ATTEMPTS = 100
"""The same for an address, behind which a whole office may be."""
PAUSE = 90.0
"""Seconds until an empty bucket of an account has one attempt more: ten in 15 minutes."""
WAITING = 128
"""Attempts of a tenant that wait for their turn: four seconds of hashing."""
DEADLINE = 10.0
"""Seconds that an attempt may wait and take."""
RETRY_AFTER = 2.0
"""Seconds after which one that was refused may find its turn."""


@dataclass
class Attempt:
    """An attempt in the making; whoever makes it says whether the password was right."""

    right: bool = False


class Throttle:
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
            async with self._turns.slot(lane, sub=account, deadline=DEADLINE):
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
            raise Unavailable(reason, retry_after=RETRY_AFTER) from error

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
