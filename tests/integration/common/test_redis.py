"""The client of Redis with a real server."""

import asyncio
from typing import Any

import uvloop

from libs.common.store.redis import connect_redis
from tests.servers import Servers


async def test_a_connection_that_the_event_loop_has_closed_is_opened_again(
    servers: Servers,
) -> None:
    """uvloop raises `RuntimeError` for a write to it, which a client of the API must not get."""

    async def lose_connection() -> list[bool]:
        async with connect_redis(servers.redis_url) as redis:
            answers = [await redis.ping()]
            connection: Any = await redis.connection_pool.get_connection()
            await redis.connection_pool.release(connection)
            connection._writer.transport.abort()
            return [*answers, await redis.ping()]

    assert await asyncio.to_thread(uvloop.run, lose_connection()) == [True, True]
