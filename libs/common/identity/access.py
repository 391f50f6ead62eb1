"""The current permissions of users.

`tw:access:{tenant}` in Redis is the version of the tenant's users, roles, menus and grants. `auth`
increases it before it answers a change. The gateway reads it together with the token. While it is
unchanged, cached permissions are valid; after a change, the gateway asks `auth`.
"""

import asyncio
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from libs.common.bus import RpcClient
from libs.common.contracts.access import GET_ACCESS, Access, UserRef
from libs.common.identity.principal import Principal, PrincipalKind
from libs.common.lru_cache import LruCache
from libs.common.store.redis import Redis


class Versioned(Protocol):
    """An answer with the version of the tenant's access."""

    @property
    def version(self) -> int:
        """Return the version, which grows with every change."""


V = TypeVar("V", bound=Versioned)


class VersionedCache(Generic[V]):
    """A cache of the answers of an rpc operation for the `cache_size` most recent users."""

    def __init__(self, rpc: RpcClient, subject: str, answer: type[V], cache_size: int) -> None:
        self._rpc = rpc
        self._subject = subject
        self._answer = answer
        self._known: LruCache[tuple[str, str], V] = LruCache(cache_size)
        self._asking: dict[tuple[str, str, int], asyncio.Task[V]] = {}

    async def get(self, user: Principal) -> V:
        """Return the answer for a user, at least of version `user.access`; 0 always requests it.

        Concurrent requests share one call.
        """
        cached = self._known.get((user.tenant, user.subject))
        if cached is not None and 0 < user.access <= cached.version:
            return cached
        key = (user.tenant, user.subject, user.access)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._request(user))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    async def _request(self, user: Principal) -> V:
        request = UserRef(user.tenant, user.user_id)
        answer = await self._rpc.call(self._subject, request, self._answer)
        self._known.put((user.tenant, user.subject), answer)
        return answer


MAX_CACHED_USERS = 10_000
"""Users whose permissions a process caches."""


def access_version_key(tenant: str) -> str:
    """Return the Redis key of the version of a tenant's access."""
    return f"tw:access:{tenant}"


class AccessVersions:
    """Increases versions; used only by `auth`."""

    def __init__(self, redis: Redis) -> None:
        text = (Path(__file__).parent / "access_raise.lua").read_text()
        self._raise = redis.register_script(text)

    async def raise_to(self, tenant: str, version: int) -> None:
        """Raise the version to at least `version`; may be repeated."""
        await self._raise(keys=[access_version_key(tenant)], args=[version])


class AccessReader:
    """Adds permissions to principals of users; used by the gateway."""

    def __init__(self, rpc: RpcClient) -> None:
        self._cache = VersionedCache(rpc, GET_ACCESS, Access, MAX_CACHED_USERS)

    async def add_access(self, principal: Principal) -> Principal:
        """Return a user with the permissions of version `principal.access` or newer.

        Principals of other kinds are returned unchanged. Version 0 means that Redis has none:
        `auth` is asked and restores it. Raises `Unauthenticated` if the user is deleted or
        disabled, `Unavailable` without an answer of `auth`.
        """
        if principal.kind is not PrincipalKind.USER:
            return principal
        access = await self._cache.get(principal)
        return msgspec.structs.replace(
            principal,
            functions=access.functions,
            super_admin=access.super_admin,
            viewers_may_command=access.viewers_may_command,
            access=access.version,
        )
