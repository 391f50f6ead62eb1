"""Token buckets in Redis: taking is atomic across replicas, and the clock is Redis's."""

from pathlib import Path
from typing import cast

from libs.common.store.redis import Redis

_SCRIPT = (Path(__file__).parent / "token_bucket.lua").read_text()


class TokenBuckets:
    """Buckets under `tw:limit:{owner}:{key}`, each refilled at a rate up to its burst.

    `owner` is the service: two that count one address at other rates must not share a bucket.
    """

    def __init__(self, redis: Redis, owner: str) -> None:
        self._redis = redis
        self._owner = owner
        self._script = redis.register_script(_SCRIPT)

    async def take(
        self, key: str, *, rate: float, burst: int, wanted: int = 1
    ) -> tuple[int, float]:
        """Take up to `wanted` permits; return how many, and the seconds until the next is there.

        `rate` is in permits per second. A negative `wanted` gives permits back.
        """
        answer = await self._script(keys=[self._key(key)], args=[rate, burst, wanted])
        granted, wait_ms = cast("list[int]", answer)
        return granted, wait_ms / 1000

    async def fill(self, key: str) -> None:
        """Make a bucket full again."""
        await self._redis.delete(self._key(key))

    def _key(self, key: str) -> str:
        return f"tw:limit:{self._owner}:{key}"
