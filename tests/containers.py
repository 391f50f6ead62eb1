"""The test servers in containers (`--servers=containers`); images from the environment."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

testcontainers_config.ryuk_disabled = True  # whoever starts a container here also ends it

LOOPBACK = "127.0.0.1"


def _container(image: str, port: int, inside: int, command: str) -> DockerContainer:
    made = DockerContainer(image).with_command(command)
    made.ports[inside] = (LOOPBACK, port)  # with_bind_ports() cannot name an address
    return made


@contextlib.contextmanager
def nats(port: int) -> Iterator[None]:
    """A NATS server with JetStream on `port` of the loopback."""
    image = os.environ.get("NATS_IMAGE", "nats:2-alpine")
    with _container(image, port, 4222, "-js -sd /tmp/jetstream"):
        yield


@contextlib.asynccontextmanager
async def host(_: Path, mongo_port: int, redis_port: int) -> AsyncIterator[None]:
    """MongoDB (not yet initiated) and Redis on the given ports of the loopback.

    MongoDB has the same port inside: a member of a replica set must reach itself by the
    address under which clients know it.
    """
    mongo = _container(
        os.environ.get("MONGO_IMAGE", "mongo:8.0"),
        mongo_port,
        mongo_port,
        f"mongod --port {mongo_port} --bind_ip_all --replSet rs0 --quiet",
    )
    image = os.environ.get("REDIS_IMAGE", "redis:7-alpine")
    # Reachable by the loopback's published port only, hence no protected mode.
    redis = _container(image, redis_port, 6379, "redis-server --protected-mode no --databases 64")
    started: list[DockerContainer] = []
    try:
        for container in (mongo, redis):
            started.append(container)
            await asyncio.to_thread(container.start)
        yield
    finally:
        await asyncio.gather(*(asyncio.to_thread(one.stop) for one in started))
