"""With which credential connections were admitted to the bus: the latest of each user, in Redis.

`tw:admitted:{user in capitals}` is a list, the latest first. It tells which connections a new
key has made, which are never older than the key; so what is not in it (any more) is of an
earlier one.
"""

from typing import Any

import msgspec

from libs.common.clock import now_ms
from libs.common.contracts.auth import Connection
from libs.common.identity.tenants import TENANT_LIFE, tenant_key
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
    """Writes and reads admissions."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def add(self, user: str, tenant: str, connection: Connection, credential: str) -> int:
        """Note an admission, and whose the user is; return how many of the user are kept."""
        key = _key(user)
        entry = Admitted(connection.server, connection.cid, credential, now_ms())
        async with self._redis.pipeline(transaction=False) as commands:
            commands.lpush(key, msgspec.json.encode(entry))
            commands.ltrim(key, 0, KEPT - 1)
            commands.expire(key, LIFE)
            commands.set(tenant_key(user), tenant, ex=TENANT_LIFE)
            number: list[Any] = await commands.execute()
        return int(number[0])

    async def of(self, user: str) -> list[Admitted]:
        """The latest admissions of a user."""
        rows = await self._redis.lrange(_key(user), 0, -1)
        return [msgspec.json.decode(row, type=Admitted) for row in rows]


def _key(user: str) -> str:
    return f"tw:admitted:{user.upper()}"
