"""Fixtures of the integration tests that are about the bus."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.nats_door import Server, nats_door


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory) -> AsyncIterator[Server]:
    """A nats-server as devices, applications and services find it."""
    async with nats_door(tmp_path_factory.mktemp("nats")) as running:
        yield running
