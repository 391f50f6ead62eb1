"""Users as `auth` knows them: nicknames, and the tenant of a user of the bus.

`tw:bus-tenant:{user in capitals}` is written by the auth callout when it lets somebody in.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from libs.common.bus import RpcClient
from libs.common.contracts.auth import DESCRIBE_USERS, DescribedUsers, DescribeUsers
from libs.common.errors import Unavailable
from libs.common.recent import Recent
from libs.common.store.redis import Redis, RedisError

log = logging.getLogger(__name__)


class People:
    """Looks nicknames up."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def nicknames(self, tenant: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Return nicknames by user id; empty while `auth` does not answer.

        What people have made is worth showing without their names.
        """
        if not ids:
            return {}
        try:
            found = await self._rpc.call(
                DESCRIBE_USERS, DescribeUsers(tenant, list(ids)), DescribedUsers
            )
        except Unavailable as error:
            log.warning("the names of users are left out: %s", error)
            return {}
        return {int(user_id): name for user_id, name in found.nicknames.items()}


KEPT = 100_000
"""Users that are kept."""
TENANT_LIFE = 86_400 * 30
"""Seconds that Redis keeps one after its last log-in."""


def tenant_key(user: str) -> str:
    """Where Redis has the tenant of a user."""
    return f"tw:bus-tenant:{user.upper()}"


class TenantsOfUsers:
    """The tenants of users; one that is not known yet is asked for beside, and empty so long."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._known: Recent[str, str] = Recent(KEPT)
        self._asking: dict[str, asyncio.Task[None]] = {}

    def of(self, user: str) -> str:
        """The tenant of a user, empty while it is not known."""
        known = self._known.get(user)
        if known is None:
            if user not in self._asking and len(self._asking) < KEPT:
                task = self._asking[user] = asyncio.ensure_future(self._ask(user))
                task.add_done_callback(lambda _: self._asking.pop(user, None))
            return ""
        return known

    def known(self, user: str) -> str | None:
        """Return the tenant of a user, empty without one; None if nobody has asked for it yet."""
        return self._known.get(user)

    def learn(self, user: str, tenant: str) -> None:
        """Keep the tenant of a user that has logged in."""
        self._known.put(user, tenant)

    async def find(self, user: str) -> str:
        """Ask for the tenant of a user and return it; empty if there is none or Redis fails."""
        await self._ask(user)
        return self._known.get(user) or ""

    async def _ask(self, user: str) -> None:
        try:
            found = await self._redis.get(tenant_key(user))
        except RedisError as error:
            log.warning("the tenant of %s is not known: %r", user, error)
            return
        self._known.put(user, found.decode() if isinstance(found, bytes) else "")
