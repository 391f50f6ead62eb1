"""Token state in Redis, and its look-up by the gateway.

A token is opaque and has 256 random bits. Redis has only its SHA-256, so that a dump of Redis
reveals no token. `tw:token:{sha256}` has the principal of an access token until it expires. Refresh
tokens are stored under `tw:refresh:{sha256}`, so that the two cannot be confused. Revocation
deletes the keys and takes effect with the next look-up. `services/auth/tokens` writes the keys.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from libs.common.identity.access import access_version_key
from libs.common.identity.principal import Principal, PrincipalKind
from libs.common.lru_cache import LruCache
from libs.common.store.redis import Redis, RequestBatcher

MAX_CACHED_TOKENS = 50_000
"""Tokens whose tenant a process caches."""


def token_hash(token: str) -> str:
    """Return the SHA-256 of a token in hexadecimal, which is part of its Redis keys."""
    return hashlib.sha256(token.encode()).hexdigest()


def access_token_key(hashed: str) -> str:
    """Return the Redis key of the access token with this hash."""
    return f"tw:token:{hashed}"


def token_key(token: str) -> str:
    """Return the Redis key of an access token."""
    return access_token_key(token_hash(token))


def refresh_key(token: str) -> str:
    """Return the Redis key of a refresh token."""
    return f"tw:refresh:{token_hash(token)}"


class TokenReader:
    """Reads access tokens, and for users the version of their permissions.

    The tenant of a token never changes. It is cached, so that token and version are read in one
    round trip; only the first look-up of a user's token takes two.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._decode = msgspec.json.Decoder(Principal).decode
        self._tenants: LruCache[str, str] = LruCache(MAX_CACHED_TOKENS)
        self._coalescing = RequestBatcher(self.principals)

    async def principal(self, token: str) -> Principal | None:
        """Return the principal of a token, None if it is invalid; raises errors of Redis.

        Look-ups in one iteration of the event loop share a round trip.
        """
        return await self._coalescing.answer(token)

    async def principals(self, tokens: Sequence[str]) -> list[Principal | None]:
        """Return the principal of each token, None if it is invalid.

        `access` of a user is the tenant's version, 0 if Redis has none.
        """
        if not tokens:
            return []
        keys = list(map(token_key, tokens))
        tenants = list({tenant for key in keys if (tenant := self._tenants.get(key))})
        raw = await self._redis.mget([*keys, *map(access_version_key, tenants)])
        principals = [
            None if stored is None else self._decode(stored) for stored in raw[: len(keys)]
        ]
        users = {
            at: principal
            for at, principal in enumerate(principals)
            if principal is not None and principal.kind is PrincipalKind.USER
        }
        versions = dict(zip(tenants, raw[len(keys) :], strict=True))
        missing = list({user.tenant for user in users.values()} - versions.keys())
        if missing:
            read = await self._redis.mget(list(map(access_version_key, missing)))
            versions.update(zip(missing, read, strict=True))
        for at, user in users.items():
            self._tenants.put(keys[at], user.tenant)
            version = int(versions[user.tenant] or 0)
            principals[at] = msgspec.structs.replace(user, access=version)
        return principals


def live_password_key(password: str) -> str:
    """Return the Redis key that holds the user of a live password until the logout."""
    return f"tw:live:{token_hash(password)}"
