"""Clients of the real servers."""

from collections.abc import AsyncIterator

import pytest_asyncio

from libs.common.bus import EVENTS, UPLINK, Bus
from libs.common.store.mongo import Mongo
from tests.servers import Servers


@pytest_asyncio.fixture
async def mongo(servers: Servers, database: str) -> AsyncIterator[Mongo]:
    """A database of the test's own."""
    client = Mongo(servers.mongo_url, database)
    yield client
    await client.close()


@pytest_asyncio.fixture
async def bus(servers: Servers) -> AsyncIterator[Bus]:
    """A bus with empty streams."""
    found = await Bus.connect(servers.nats_url, name="test", stream_replicas=1)
    for stream in (EVENTS, UPLINK):
        await found.js.purge_stream(stream)
    yield found
    await found.drain()
