"""With which credential connections were admitted to the bus: the latest of each user, in Redis.

`tw:admitted:{user in capitals}` is a list, the latest first. It tells which connections a new
key has made, which are never older than the key; so what is not in it (any more) is of an
earlier one. Written by the callout as it lets somebody in (`callout/admit.lua`).
"""

import msgspec

from libs.common.contracts.auth import Connection
from libs.common.store.redis import Redis

KEPT = 256
"""Most admissions of one user."""
LIFE = 3600
"""Seconds that a user's admissions are kept after the last."""


class Admitted(msgspec.Struct, frozen=True, array_like=True):
    """An admission."""

    server: str
    cid: int
    credential: str
    at: int
    """When, in ms."""

    @property
    def connection(self) -> Connection:
        """The connection that was let in."""
        return Connection(self.server, self.cid)


class Admissions:
    """Reads admissions, and stops them."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def of(self, user: str) -> list[Admitted]:
        """The latest admissions of a user."""
        rows = await self._redis.lrange(admissions_key(user), 0, -1)
        return [msgspec.json.decode(row, type=Admitted) for row in rows]

    async def bar(self, user: str, seconds: int) -> None:
        """Let a user in again only when `seconds` are over."""
        await self._redis.set(barred_key(user), 1, ex=seconds)


def barred_key(user: str) -> str:
    """What stands as long as a user is not let in."""
    return f"tw:barred:{user.upper()}"


def admissions_key(user: str) -> str:
    """Where the admissions of a user stand."""
    return f"tw:admitted:{user.upper()}"
