"""Console operations of the device service."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.conftest import MongoOf
from tests.integration.device.console.world import Listening, World, running
from tests.servers import Servers


@pytest_asyncio.fixture(scope="module")
async def started(
    servers: Servers, module_database: str, mongo_of: MongoOf
) -> AsyncIterator[tuple[World, Listening]]:
    """Return the operations, which the tests of a module share."""
    async with running(servers, mongo_of(module_database)) as found:
        yield found


@pytest_asyncio.fixture
async def world(started: tuple[World, Listening]) -> World:
    """Return the operations with an empty database."""
    await started[0].empty()
    started[1].heard.clear()
    return started[0]


@pytest_asyncio.fixture
async def heard(started: tuple[World, Listening], world: World) -> Listening:
    """Return published messages of the service."""
    return started[1]
