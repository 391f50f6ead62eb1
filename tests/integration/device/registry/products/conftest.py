"""The features on a real MongoDB."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.device.registry.devices.platform import Platform, running
from tests.servers import Servers


@pytest_asyncio.fixture(scope="module")
async def started(servers: Servers, module_database: str) -> AsyncIterator[Platform]:
    """The features, started once for the tests of a module."""
    async with running(servers.mongo_url, module_database) as platform:
        yield platform


@pytest_asyncio.fixture
async def platform(started: Platform) -> Platform:
    """The features with nothing in them."""
    await started.empty()
    return started
