"""Data about users from `auth`: nicknames, and the tenant of a user of the bus.

The auth callout writes `tw:bus-tenant:{user in capitals}` when it accepts a login.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from libs.common.bus import RpcClient
from libs.common.contracts.auth import DESCRIBE_USERS, DescribedUsers, DescribeUsers
from libs.common.errors import Unavailable
from libs.common.lru_cache import LruCache
from libs.common.store.redis import Redis, RedisError

log = logging.getLogger(__name__)


class UserNames:
    """Reads the nicknames of users."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def nicknames(self, tenant: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Return nicknames by user id; empty while `auth` does not answer.

        Callers show their resources without names rather than fail.
        """
        if not ids:
            return {}
        try:
            described = await self._rpc.call(
                DESCRIBE_USERS, DescribeUsers(tenant, list(ids)), DescribedUsers
            )
        except Unavailable as error:
            log.warning("nicknames of users are not available: %s", error)
            return {}
        return {int(user_id): name for user_id, name in described.nicknames.items()}


MAX_CACHED_USERS = 100_000
"""Cached users."""
TENANT_LIFETIME_SECONDS = 86_400 * 30
"""Seconds for which Redis keeps the tenant of a bus user after the last login."""


def user_tenant_key(user: str) -> str:
    """Return the Redis key of the tenant of a user of the bus."""
    return f"tw:bus-tenant:{user.upper()}"


class UserTenants:
    """A cache of the tenants of users of the bus, filled in the background."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._known: LruCache[str, str] = LruCache(MAX_CACHED_USERS)
        self._asking: dict[str, asyncio.Task[None]] = {}

    def get(self, user: str) -> str:
        """Return the tenant of a user; if unknown, return "" and start to read it."""
        cached = self._known.get(user)
        if cached is None:
            if user not in self._asking and len(self._asking) < MAX_CACHED_USERS:
                task = self._asking[user] = asyncio.ensure_future(self._request(user))
                task.add_done_callback(lambda _: self._asking.pop(user, None))
            return ""
        return cached

    def known(self, user: str) -> str | None:
        """Return the cached tenant of a user, "" if it has none; None if not read yet."""
        return self._known.get(user)

    def remember(self, user: str, tenant: str) -> None:
        """Cache the tenant of a user that has logged in."""
        self._known.put(user, tenant)

    async def find(self, user: str) -> str:
        """Read the tenant of a user; empty if it has none, or is unknown because Redis fails."""
        await self._request(user)
        return self._known.get(user) or ""

    async def _request(self, user: str) -> None:
        try:
            tenant = await self._redis.get(user_tenant_key(user))
        except RedisError as error:
            log.warning("the tenant of %s cannot be read: %r", user, error)
            return
        self._known.put(user, tenant.decode() if isinstance(tenant, bytes) else "")
