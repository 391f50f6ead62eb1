"""The auth service in this process, on real servers; NATS asks it who may come in."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from litestar import Litestar
from opentelemetry.sdk.metrics import MeterProvider

from deploy.local import ports, programs
from deploy.local.nats import USERS, NatsConfig, render_nats_config
from libs.common.bus import Bus, RpcClient
from libs.common.bus.nkeys import KeyKind, KeyPair
from libs.common.contracts.auth import ApplicationSecret, CreateApplication
from libs.common.identity import make_keys
from libs.common.identity.tokens import TokenReader
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis, connect_redis
from libs.common.telemetry import Telemetry
from services.auth.app import build_app
from services.auth.migrations import MIGRATIONS
from services.auth.settings import AuthSettings
from tests.servers import _wait_for_nats

ISSUER = KeyPair.create(KeyKind.ACCOUNT)


@dataclass(frozen=True)
class Door:
    """A NATS server that puts unknown connections to the auth service."""

    url: str
    mqtt_port: int

    async def bus(self, user: str) -> Bus:
        return await Bus.connect(self.url, user=user, password=f"secret-{user}", name=user)


@dataclass(frozen=True)
class Auth:
    """The running service, and what a test does with it."""

    http: httpx.AsyncClient
    app: Litestar
    rpc: RpcClient
    bus: Bus
    mongo: Mongo
    redis: Redis
    door: Door

    async def call(self, operation: str, request: Any, answer: type) -> Any:
        return await self.rpc.call(f"rpc.auth.{operation}", request, answer)

    async def application(self, name: str = "first", **more: Any) -> ApplicationSecret:
        wanted = CreateApplication(name=name, **more)
        return await self.call("create_application", wanted, ApplicationSecret)

    async def log_in(self, application: ApplicationSecret) -> dict[str, Any]:
        answer = await self.http.post(
            "/oauth/token",
            data={
                "grant_type": "client_credentials",
                "client_id": application.client_id,
                "client_secret": application.client_secret,
            },
        )
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    async def refresh(self, token: str, **more: str) -> httpx.Response:
        return await self.http.post(
            "/oauth/token", data={"grant_type": "refresh_token", "refresh_token": token, **more}
        )

    async def principal(self, token: str) -> Any:
        (found,) = await TokenReader(self.redis).principals([token])
        return found


@pytest.fixture(scope="session")
def door(tmp_path_factory) -> Iterator[Door]:
    """A nats-server as the launcher configures it."""
    folder = tmp_path_factory.mktemp("nats-auth")
    port = ports.choose_free()
    mqtt_port = ports.choose_free({port})
    config = folder / "nats.conf"
    config.write_text(
        render_nats_config(
            NatsConfig(
                passwords={user: f"secret-{user}" for user in USERS},
                callout_issuer=ISSUER.public_key,
                store_dir=folder,
                port=port,
                mqtt_port=mqtt_port,
            )
        )
    )
    program = programs.find(programs.NATS).path
    with (folder / "nats.log").open("wb") as log:
        process = subprocess.Popen([program, "-c", config], stdout=log, stderr=log)
    try:
        _wait_for_nats(port)
        yield Door(f"nats://127.0.0.1:{port}", mqtt_port)
    finally:
        process.terminate()
        process.wait()


@contextlib.asynccontextmanager
async def _running(app: Litestar) -> AsyncIterator[None]:
    """Run the app's lifespan in one task, as a server does; a fixture ends in another."""
    started, stop = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with app.lifespan():
            started.set()
            await stop.wait()

    task = asyncio.ensure_future(live())
    waiting = asyncio.ensure_future(started.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        waiting.cancel()
        await task
    yield
    stop.set()
    await task


@pytest_asyncio.fixture
async def auth(servers, database, door) -> AsyncIterator[Auth]:
    """The service on a database of its own and an empty Redis."""
    async with contextlib.AsyncExitStack() as stack:
        mongo = Mongo(servers.mongo_url, database)
        stack.callback(mongo.close)
        redis = connect_redis(servers.redis_url)
        stack.push_async_callback(redis.aclose)
        await redis.flushdb()
        bus = await Bus.connect(
            door.url, user="auth", password="secret-auth", name="auth", streams=True
        )
        stack.push_async_callback(bus.drain)
        other = await door.bus("device")
        stack.push_async_callback(other.drain)
        await migrate(mongo.database, MIGRATIONS)
        settings = AuthSettings(
            callout_seed=ISSUER.seed, internal_public_key=make_keys()[1], mongo_database=database
        )
        app = build_app(settings, mongo, redis, bus, Telemetry(None, MeterProvider()))
        await stack.enter_async_context(_running(app))
        for _ in range(2):  # nats-py lets a first PING overtake the subscriptions
            await bus.client.flush()
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://auth")
        await stack.enter_async_context(http)
        yield Auth(http, app, RpcClient(other), other, mongo, redis, door)
