"""Whether credentials are valid, and what their users may do and see as of now.

Of Redis this service may read what it knows of credentials, and nothing else.
"""

from collections.abc import Sequence

import msgspec

from libs.common.bus import RpcClient
from libs.common.contracts.access import ACCESS, Access, UserRef
from libs.common.errors import Unauthenticated, Unavailable
from libs.common.identity import Principal
from libs.common.identity.access import access_key
from libs.common.identity.grants import GrantReader, Grants
from libs.common.store.redis import Redis, RedisError


class Credentials:
    """Whether credentials are valid, and the access versions of tenants."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def valid(self, keys: Sequence[str]) -> list[bool]:
        """Tell of each credential, by its key, whether it is valid; raise `Unavailable`."""
        return [found is not None for found in await self._read(list(keys))]

    async def holder(self, key: str) -> Principal | None:
        """Whose credential it is; None when it is none. Raises `Unavailable`."""
        (found,) = await self._read([key])
        return None if found is None else msgspec.json.decode(found, type=Principal)

    async def versions(self, tenants: Sequence[str]) -> list[int]:
        """The access version of each tenant, 0 where there is none; raise `Unavailable`."""
        return [int(found or 0) for found in await self._read(list(map(access_key, tenants)))]

    async def _read(self, keys: list[str]) -> list[bytes | str | None]:
        try:
            return await self._redis.mget(keys) if keys else []
        except (RedisError, OSError) as error:
            raise Unavailable("the token store does not answer at the moment") from error


class Judge:
    """Asks `auth` about users."""

    def __init__(self, rpc: RpcClient, grants: GrantReader) -> None:
        self._rpc = rpc
        self._grants = grants

    async def of(self, principal: Principal, version: int) -> tuple[Principal, Grants] | None:
        """A user with what it may do and sees at `version` or later; None when it is gone.

        Raises what `auth` answers otherwise.
        """
        user = UserRef(principal.tenant, principal.user_id)
        try:
            access = await self._rpc.call(ACCESS, user, Access)
            known = msgspec.structs.replace(
                principal,
                functions=access.functions,
                super_admin=access.super_admin,
                access=max(access.version, version),
            )
            return known, await self._grants.of(known)
        except Unauthenticated:
            return None
