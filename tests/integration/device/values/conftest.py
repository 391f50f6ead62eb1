"""The device service as a whole."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.conftest import MongoOf
from tests.integration.device.values.world import Lamps, World, running
from tests.servers import Servers


@pytest_asyncio.fixture(scope="module")
async def started(
    servers: Servers, module_database: str, mongo_of: MongoOf
) -> AsyncIterator[World]:
    """The service, started once for the tests of a module."""
    async with running(servers, mongo_of(module_database)) as found:
        yield found


@pytest_asyncio.fixture
async def world(started: World) -> World:
    """The service; each test names its things for itself."""
    started.announced.silent.clear()
    for user_id in (7, 8, 9):
        started.grants.take(user_id)
    return started


@pytest_asyncio.fixture
async def lamps(world: World) -> AsyncIterator[Lamps]:
    """An integration that runs."""
    found = Lamps()
    async with world.hosting(found):
        yield found
