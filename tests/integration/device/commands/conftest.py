"""Real servers for each test."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.conftest import MongoOf
from tests.integration.device.telemetry.world import World, running
from tests.servers import Servers


@pytest_asyncio.fixture
async def world(servers: Servers, database: str, mongo_of: MongoOf) -> AsyncIterator[World]:
    """Return empty streams, an empty database, and one ingest process."""
    async with running(servers, mongo_of(database)) as found:
        yield found
