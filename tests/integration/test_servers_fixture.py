"""The servers that other integration tests build on."""

import nats
from pymongo import AsyncMongoClient
from redis.asyncio import Redis

from tests.servers import Servers


async def test_mongodb_takes_transactions(servers: Servers, database: str) -> None:
    """MongoDB is a replica set, so the outbox can write two documents at once."""
    async with AsyncMongoClient(servers.mongo_url) as client:
        await client[database].create_collection("a")
        async with client.start_session() as session, await session.start_transaction():
            await client[database]["a"].insert_one({"x": 1}, session=session)
            await client[database]["a"].insert_one({"x": 2}, session=session)
        assert await client[database]["a"].count_documents({}) == 2


async def test_redis_answers(servers: Servers) -> None:
    """Redis keeps what it is given."""
    async with Redis.from_url(servers.redis_url) as client:
        await client.set("servers-fixture", "1")
        assert await client.get("servers-fixture") == b"1"


async def test_nats_has_jetstream(servers: Servers) -> None:
    """NATS keeps streams."""
    client = await nats.connect(servers.nats_url)
    try:
        stream = await client.jetstream().add_stream(name="TRIAL", subjects=["trial"])
        assert stream.config.name == "TRIAL"
        await client.jetstream().delete_stream("TRIAL")
    finally:
        await client.close()
