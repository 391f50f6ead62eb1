"""Limits: token buckets in Redis, and the limits and usage of tenants."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import cast

from libs.common.store.redis import Redis

TAKE_SCRIPT = (Path(__file__).parent / "token_bucket.lua").read_text()
"""The beginning of a Lua script: it defines `take`, which the rest of the script calls."""
_TAKE_ONLY = "return {take(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))}"


def bucket_key(owner: str, key: str) -> str:
    """Return the Redis key of a bucket."""
    return f"tw:limit:{owner}:{key}"


class TokenBuckets:
    """Buckets under `tw:limit:{owner}:{key}`, each refilled at a rate up to its burst.

    `owner` is the service: services that limit the same address must not share a bucket.
    """

    def __init__(self, redis: Redis, owner: str) -> None:
        self._redis = redis
        self._owner = owner
        self._script = redis.register_script(TAKE_SCRIPT + _TAKE_ONLY)

    async def take_permits(
        self, key: str, *, rate: float, burst: int, number: int = 1
    ) -> tuple[int, float]:
        """Take up to `number` permits; return how many were taken and the wait for the next one.

        `rate` is in permits per second. A negative `number` returns permits.
        """
        keys = [bucket_key(self._owner, key)]
        answer = await self._script(keys=keys, args=[rate, burst, number])
        granted, wait_ms = cast("list[int]", answer)
        return granted, wait_ms / 1000

    async def fill(self, key: str) -> None:
        """Reset a token bucket to its full number of permits."""
        await self._redis.delete(bucket_key(self._owner, key))


def address_key(address: str) -> str:
    """Return the address, or the /64 network of an IPv6 address, which a client owns."""
    return address if ":" not in address else _client_network(address)


@lru_cache(maxsize=4096)
def _client_network(address: str) -> str:
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ip_network((parsed, 64), strict=False))
