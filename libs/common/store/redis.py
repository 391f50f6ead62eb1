"""Redis: the one place that makes its client."""

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

__all__ = ["Redis", "RedisConnectionError", "RedisError", "RedisTimeoutError", "connect_redis"]


def connect_redis(url: str) -> Redis:
    """Make the client of this process; it connects when first used, and again when needed."""
    return Redis.from_url(
        url,
        socket_timeout=3.0,
        socket_connect_timeout=3.0,
        health_check_interval=30,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 3),
        retry_on_error=[RedisConnectionError, RedisTimeoutError],
        max_connections=128,
    )
