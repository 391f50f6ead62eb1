"""Token state in Redis: where it stands, and how the gateway looks it up.

A token is opaque, 256 random bits; Redis has its SHA-256 only, so that a dump of Redis
opens nothing. `tw:token:{sha256}` holds the principal of an access token for as long as
it lives. Refresh tokens stand under `tw:refresh:{sha256}`, so one is never taken for the
other. Revocation deletes the keys and is seen by the next look-up. What writes them is
`services/auth/tokens`.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from libs.common.identity.access import access_key
from libs.common.identity.principal import Kind, Principal
from libs.common.recent import Recent
from libs.common.store.redis import Coalescing, Redis

REMEMBERED = 50_000
"""Most tokens whose tenant a process remembers."""


def token_hash(token: str) -> str:
    """The SHA-256 of a token in hex, under which everything about it is kept."""
    return hashlib.sha256(token.encode()).hexdigest()


def access_token_key(hashed: str) -> str:
    """Where the principal of the access token with this hash stands."""
    return f"tw:token:{hashed}"


def token_key(token: str) -> str:
    """Where the principal of an access token stands."""
    return access_token_key(token_hash(token))


def refresh_key(token: str) -> str:
    """Where a refresh token stands."""
    return f"tw:refresh:{token_hash(token)}"


class TokenReader:
    """Looks access tokens up, and for users the version of what they may do.

    Whose token it is never changes, so a token's tenant is remembered and both are read in
    one round trip; only the first look-up of a user's token takes two.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._decode = msgspec.json.Decoder(Principal).decode
        self._tenants: Recent[str, str] = Recent(REMEMBERED)
        self._coalescing = Coalescing(self.principals)

    async def principal(self, token: str) -> Principal | None:
        """The principal of a token, None when it is not valid; raises what Redis raises.

        Look-ups of one event-loop turn share their round trip.
        """
        return await self._coalescing.answer(token)

    async def principals(self, tokens: Sequence[str]) -> list[Principal | None]:
        """The principal of each token, None where it is not valid.

        A user's has the tenant's version in `access`, 0 when Redis has none.
        """
        if not tokens:
            return []
        keys = list(map(token_key, tokens))
        tenants = list({tenant for key in keys if (tenant := self._tenants.get(key))})
        raw = await self._redis.mget([*keys, *map(access_key, tenants)])
        found = [None if one is None else self._decode(one) for one in raw[: len(keys)]]
        users = {
            at: one for at, one in enumerate(found) if one is not None and one.kind is Kind.USER
        }
        versions = dict(zip(tenants, raw[len(keys) :], strict=True))
        missing = list({user.tenant for user in users.values()} - versions.keys())
        if missing:
            read = await self._redis.mget(list(map(access_key, missing)))
            versions.update(zip(missing, read, strict=True))
        for at, user in users.items():
            self._tenants.put(keys[at], user.tenant)
            version = int(versions[user.tenant] or 0)
            found[at] = msgspec.structs.replace(user, access=version)
        return found


def live_key(password: str) -> str:
    """Where Redis has the user of a password, for as long as its log-in lasts."""
    return f"tw:live:{token_hash(password)}"
