"""A world of real servers for each test."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.device.telemetry.world import World, running
from tests.servers import Servers


@pytest_asyncio.fixture
async def world(servers: Servers, database: str) -> AsyncIterator[World]:
    """Empty streams, an empty database, and one ingest process."""
    async with running(servers, database) as found:
        yield found
