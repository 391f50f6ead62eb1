"""Fixtures of the integration tests that are about the bus, and where modules run."""

import os
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import pytest
import pytest_asyncio

from libs.common.store.mongo import Mongo
from tests.integration.nats_door import Server, nats_door
from tests.servers import Servers

MongoOf = Callable[[str], Mongo]
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a module in one process: what its tests share is started once."""
    group = cache(lambda path: pytest.mark.xdist_group(str(path.relative_to(HERE))))
    here = f"{HERE}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(group(item.path))


@pytest_asyncio.fixture(scope="session")
async def mongo_of(servers: Servers) -> AsyncIterator[MongoOf]:
    """Gives clients of a database of `emptied`: the tests of a process share their connections."""
    made: list[Mongo] = []

    @cache
    def of(database: str) -> Mongo:
        made.append(Mongo(servers.mongo_url, database))
        return made[-1]

    yield of
    for mongo in made:
        await mongo.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory) -> AsyncIterator[Server]:
    """A nats-server as devices, applications and services find it."""
    async with nats_door(tmp_path_factory.mktemp("nats")) as running:
        yield running
