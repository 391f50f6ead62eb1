"""The device service as a whole."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.conftest import MongoOf
from tests.integration.device.values.world import World, property_of, running
from tests.servers import Servers

OVEN = {
    "version": "v1.0",
    "properties": [
        property_of("heat", "DOUBLE", "R"),
        property_of("door", "STRUCT"),
        property_of("door.open", "BOOL"),
    ],
    "events": [
        {"id": "smoke", "name": "smoke", "outputs": []},
        {"id": "clear", "name": "clear", "outputs": []},
    ],
    "services": [],
}


@pytest_asyncio.fixture(scope="module")
async def started(
    servers: Servers, module_database: str, mongo_of: MongoOf
) -> AsyncIterator[World]:
    """Return the service, which the tests of a module share."""
    async with running(servers, mongo_of(module_database)) as found:
        await found.put_product("OVEN", OVEN)
        yield found


@pytest_asyncio.fixture
async def world(started: World) -> World:
    """Return the service; each test creates things of its own."""
    for user_id in (7, 8, 9):
        started.grants.take(user_id)
    return started
