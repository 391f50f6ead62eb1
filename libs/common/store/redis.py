"""Redis: the one place that makes its client."""

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

__all__ = [
    "Redis",
    "RedisConnectionError",
    "RedisError",
    "RedisTimeoutError",
    "check_redis",
    "connect_redis",
]

CONNECTIONS = 64
"""Most connections of one process."""
WAIT = 3.0
"""Seconds that a command waits for a connection, for its opening, and for its answer."""


def connect_redis(url: str) -> Redis:
    """Make the client of this process; it connects when first used, and again when needed.

    Commands beyond `CONNECTIONS` at a time wait for a connection: redis-py's plain pool
    fails them at once, so that a burst would look like a Redis that is gone.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        timeout=WAIT,
        socket_timeout=WAIT,
        socket_connect_timeout=WAIT,
        health_check_interval=30,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 3),
        retry_on_error=[RedisConnectionError, RedisTimeoutError],
        max_connections=CONNECTIONS,
    )
    return Redis.from_pool(pool)


async def check_redis(redis: Redis) -> None:
    """Raise `RedisError` while Redis does not answer (a readiness check)."""
    await redis.ping()
