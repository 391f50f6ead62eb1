"""The features on a real MongoDB."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.conftest import MongoOf
from tests.integration.device.registry.devices.platform import Platform, running


@pytest_asyncio.fixture(scope="module")
async def started(module_database: str, mongo_of: MongoOf) -> AsyncIterator[Platform]:
    """The features, started once for the tests of a module."""
    async with running(mongo_of(module_database)) as platform:
        yield platform


@pytest_asyncio.fixture
async def platform(started: Platform) -> Platform:
    """The features with nothing in them."""
    await started.empty()
    return started
