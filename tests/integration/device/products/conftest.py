"""The features on a real MongoDB."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.device.devices.platform import Platform, running
from tests.servers import Servers


@pytest_asyncio.fixture
async def platform(servers: Servers, database: str) -> AsyncIterator[Platform]:
    """The features, started on an empty database."""
    async with running(servers.mongo_url, database) as started:
        yield started
