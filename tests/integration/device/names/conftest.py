"""The service with what it answers to other services."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.device.console.world import Listening, World, running
from tests.servers import Servers


@pytest_asyncio.fixture(scope="module")
async def started(servers: Servers) -> AsyncIterator[tuple[World, Listening]]:
    """The features, started once for the tests of a module."""
    async with running(servers) as found:
        yield found


@pytest_asyncio.fixture
async def world(started: tuple[World, Listening]) -> World:
    """The features with nothing in them."""
    await started[0].empty()
    return started[0]
