"""Reads the state of tokens from Redis; this service may read it and nothing else."""

from collections.abc import Sequence

from libs.common.errors import Unavailable
from libs.common.identity.access import access_key
from libs.common.identity.tokens import access_token_key
from libs.common.store.redis import Redis, RedisError


class TokenStates:
    """Whether tokens are valid, and the access versions of tenants."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def valid(self, hashes: Sequence[str]) -> list[bool]:
        """Tell of each token, by its hash, whether it is valid; raise `Unavailable`."""
        return [
            found is not None for found in await self._read(list(map(access_token_key, hashes)))
        ]

    async def versions(self, tenants: Sequence[str]) -> list[int]:
        """The access version of each tenant, 0 where there is none; raise `Unavailable`."""
        return [int(found or 0) for found in await self._read(list(map(access_key, tenants)))]

    async def _read(self, keys: list[str]) -> list[bytes | str | None]:
        try:
            return await self._redis.mget(keys) if keys else []
        except (RedisError, OSError) as error:
            raise Unavailable("the token store does not answer at the moment") from error
