"""The management service in this process, on real servers; `auth` is played on the bus."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import pytest_asyncio
from httpx import ASGITransport, AsyncClient
from litestar import Litestar
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.bus import Bus, OutgoingMessage, RpcClient
from libs.common.contracts.integrations import KnownIntegrations
from libs.common.identity import HeaderSigner, generate_keys
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis, connect_redis
from libs.common.telemetry import Telemetry
from services.management.app import build_app
from services.management.migrations import MIGRATIONS
from services.management.settings import ManagementSettings
from tests.console import AskedByUsers, Grants
from tests.integration.management.live import replicas, world
from tests.lending import lent
from tests.lifespan import running
from tests.servers import Servers

__all__ = ["replicas", "world"]


@dataclass
class Management(AskedByUsers):
    """The running service."""

    http: AsyncClient
    app: Litestar
    bus: Bus
    mongo: Mongo
    redis: Redis
    grants: Grants
    signer: HeaderSigner

    async def rpc(self, operation: str, request: Any, answer: type) -> Any:
        """Ask the service over the bus."""
        return await RpcClient(self.bus).call(f"rpc.management.{operation}", request, answer)

    async def tell(self, subject: str, event: Any) -> None:
        """Say an event, as another service would."""
        await self.bus.publish([OutgoingMessage(subject, msgspec.json.encode(event), uuid4().hex)])


@pytest.fixture
def database(emptied: Callable[[str], str]) -> str:
    """Name of an empty database with the service's indexes."""
    return emptied("management")


@pytest_asyncio.fixture
async def management(servers, database, mongo_of) -> AsyncIterator[Management]:
    """One service with an empty database."""
    async with started(servers, mongo_of(database)) as found:
        yield found


@asynccontextmanager
async def started(servers: Servers, mongo: Mongo) -> AsyncIterator[Management]:
    """The service on a database."""
    private, public = generate_keys()
    settings = ManagementSettings(
        mongo_url=servers.mongo_url,
        nats_url=servers.nats_url,
        internal_public_key=public,
        secrets_key=public,
    )
    redis = connect_redis(servers.redis_url)
    await redis.flushdb()
    bus = await Bus.connect(servers.nats_url, name="management", stream_replicas=1)
    auth_bus = await Bus.connect(servers.nats_url, name="auth")
    await migrate(mongo.database, MIGRATIONS)
    telemetry = Telemetry(None, MeterProvider())
    with lent(lambda: build_app(settings, mongo, redis, bus, telemetry)) as app:
        async with Grants(auth_bus) as grants, running(app):
            http = AsyncClient(transport=ASGITransport(app), base_url="http://management")
            yield Management(http, app, bus, mongo, redis, grants, HeaderSigner(private))
            await http.aclose()
    await bus.drain()
    await auth_bus.drain()
    await redis.aclose()


async def present(management: Management, integration: str) -> None:
    """Wait until an integration is there: those of one replica begin with its lease."""
    async with asyncio.timeout(20):
        while True:
            known = await management.rpc("get_integrations", {}, KnownIntegrations)
            if integration in {one.manifest.id for one in known.integrations if one.alive}:
                return
            await asyncio.sleep(0.02)
