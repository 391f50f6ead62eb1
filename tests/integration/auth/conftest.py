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
from argon2 import PasswordHasher
from litestar import Litestar
from opentelemetry.sdk.metrics import MeterProvider

from deploy.local import programs
from deploy.platform import ports
from deploy.platform.nats import NatsConfig, render_nats_config
from deploy.platform.nats_grants import USERS
from libs.common.bus import Bus, RpcClient
from libs.common.bus.nkeys import KeyKind, KeyPair
from libs.common.contracts.auth import (
    ApplicationSecret,
    CreateApplication,
    CreatedTenant,
    CreateTenant,
)
from libs.common.http.request import CLIENT_ADDRESS_HEADER
from libs.common.identity import (
    OWN_CONSOLE_CLIENT_ID,
    PRINCIPAL_HEADER,
    HeaderSigner,
    Principal,
    PrincipalKind,
    generate_keys,
)
from libs.common.identity.tokens import TokenReader
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis, connect_redis
from libs.common.telemetry import Telemetry
from services.auth import passwords
from services.auth.app import build_app
from services.auth.migrations import MIGRATIONS
from services.auth.settings import AuthSettings
from tests.databases import empty_documents, read_documents
from tests.lending import lent
from tests.lifespan import running
from tests.servers import Servers, _wait_for_nats

ADDRESS = "192.0.2.7"
"""Where people call from."""
SUPER_ADMIN = Principal(
    kind=PrincipalKind.USER,
    tenant="default",
    subject="42",
    name="root@example.com",
    super_admin=True,
    client=OWN_CONSOLE_CLIENT_ID,
)
SHARING = {
    "accounts",
    "application_routes",
    "applications",
    "devices",
    "integration_logins",
    "limits",
    "menus",
    "role_lists",
    "role_members",
    "role_resources",
    "roles",
    "sessions",
    "sign_in",
    "tenants",
    "token_inputs",
    "tokens",
    "use",
    "users",
}
"""Modules about operations: their tests share a service, whose stores are emptied.

A start costs more than most tests. Modules about replicas, connections, background jobs and what
follows a request later have a service for each test.
"""
ISSUER = KeyPair.create(KeyKind.ACCOUNT)
CONSOLE_CLIENT_ID, CONSOLE_CLIENT_SECRET = "iab", "milesight*iab"
"""The console client of the settings, with what existing consoles are built with."""


@dataclass(frozen=True)
class Door:
    """A NATS server that puts unknown connections to the auth service."""

    url: str
    mqtt_port: int

    async def bus(self, user: str) -> Bus:
        return await Bus.connect(self.url, user=user, password=f"secret-{user}", name=user)


@dataclass(frozen=True)
class Auth:
    """The running service with helpers for tests."""

    http: httpx.AsyncClient
    app: Litestar
    rpc: RpcClient
    bus: Bus
    mongo: Mongo
    redis: Redis
    door: Door
    signer: HeaderSigner
    settings: AuthSettings

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        caller: Principal = SUPER_ADMIN,
        address: str = ADDRESS,
    ) -> httpx.Response:
        """Call an operation of the management API as the gateway does."""
        headers = {PRINCIPAL_HEADER: self.signer.sign(caller), CLIENT_ADDRESS_HEADER: address}
        return await self.http.request(method, path, json=body, headers=headers)

    async def done(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """`data` of a success, whose envelope is exactly the specified one."""
        answer = await self.ask(method, path, body, **more)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:1000])
        content = answer.json()
        assert set(content) - {"data"} == {"status", "request_id"}, content
        assert content["status"] == "Success"
        return content.get("data")

    async def refused(
        self,
        status: int,
        method: str,
        path: str,
        body: Any = None,
        *,
        field: str | None = None,
        code: str | None = None,
        **more: Any,
    ) -> Any:
        """The body of a refusal, which names `field` and has `code` when they are given."""
        answer = await self.ask(method, path, body, **more)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:1000])
        content = answer.json()
        assert content["status"] == "Failed"
        assert content["error_message"]
        if field is not None:
            assert content.get("detail_message") == field, content
        if code is not None:
            assert content["error_code"] == code, content
        return content

    async def call(self, operation: str, request: Any, answer: type) -> Any:
        return await self.rpc.call(f"rpc.auth.{operation}", request, answer)

    async def application(self, name: str = "first", **more: Any) -> ApplicationSecret:
        wanted = CreateApplication(name=name, **more)
        return await self.call("create_application", wanted, ApplicationSecret)

    async def tenant(self, name: str) -> CreatedTenant:
        return await self.call("create_tenant", CreateTenant(name), CreatedTenant)

    async def entry(self, **wanted: str) -> dict[str, Any]:
        """The newest entry of the audit log that fits, as soon as there is one."""
        async with asyncio.timeout(30):
            while True:
                page = await self.done("POST", "/audit/search", wanted)
                if page["content"]:
                    return page["content"][0]
                await asyncio.sleep(0.02)

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


@pytest.fixture(scope="module", autouse=True)
def _cheap_hashes() -> Iterator[None]:
    """Hash passwords as cheaply as can be; `tests/unit/auth/passwords` has the real costs."""
    with pytest.MonkeyPatch.context() as patch:
        hasher = PasswordHasher(time_cost=1, memory_cost=16, parallelism=1)
        patch.setattr(passwords, "_hasher", hasher)
        passwords._dummy_hash.cache_clear()
        yield
    passwords._dummy_hash.cache_clear()


@pytest.fixture(scope="session")
def door(tmp_path_factory) -> Iterator[Door]:
    """A nats-server as the launcher configures it."""
    folder = tmp_path_factory.mktemp("nats-auth")
    port = ports.claim_random()
    mqtt_port = ports.claim_random()
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
    program = programs.find_program(programs.NATS).path
    with (folder / "nats.log").open("wb") as log:
        process = subprocess.Popen([program, "-c", config], stdout=log, stderr=log)
    try:
        _wait_for_nats(port)
        yield Door(f"nats://127.0.0.1:{port}", mqtt_port)
    finally:
        process.terminate()
        process.wait()


@contextlib.asynccontextmanager
async def _started(servers: Servers, mongo: Mongo, door: Door) -> AsyncIterator[Auth]:
    """Start the service on an empty Redis."""
    async with contextlib.AsyncExitStack() as stack:
        redis = connect_redis(servers.redis_url)
        stack.push_async_callback(redis.aclose)
        await redis.flushdb()
        bus = await Bus.connect(
            door.url, user="auth", password="secret-auth", name="auth", stream_replicas=1
        )
        stack.push_async_callback(bus.drain)
        other = await door.bus("admin")
        stack.push_async_callback(other.drain)
        await migrate(mongo.database, MIGRATIONS)
        private_key, public_key = generate_keys()
        settings = AuthSettings(
            callout_seed=ISSUER.seed,
            nats_user="auth",
            nats_password="secret-auth",
            mqtt_url=f"mqtt://127.0.0.1:{door.mqtt_port}",
            internal_public_key=public_key,
            mongo_database=mongo.database.name,
            console_client_id=CONSOLE_CLIENT_ID,
            console_client_secret=CONSOLE_CLIENT_SECRET,
        )
        telemetry = Telemetry(None, MeterProvider())
        app = stack.enter_context(lent(lambda: build_app(settings, mongo, redis, bus, telemetry)))
        await stack.enter_async_context(running(app))
        for _ in range(2):  # nats-py lets a first PING overtake the subscriptions
            await bus.client.flush()
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://auth")
        await stack.enter_async_context(http)
        signer = HeaderSigner(private_key)
        yield Auth(http, app, RpcClient(other), other, mongo, redis, door, signer, settings)


@pytest_asyncio.fixture
async def own_auth(servers, emptied, mongo_of, door) -> AsyncIterator[Auth]:
    """The service on an empty database and an empty Redis."""
    async with _started(servers, mongo_of(emptied("auth")), door) as found:
        yield found


@pytest_asyncio.fixture(scope="module")
async def shared_auth(
    servers, emptied, mongo_of, door
) -> AsyncIterator[tuple[Auth, dict[str, list[Any]]]]:
    """The service of a module, and the documents that it writes when it starts."""
    async with _started(servers, mongo_of(emptied("auth of a module")), door) as found:
        yield found, await read_documents(found.mongo.database)


@pytest_asyncio.fixture
async def emptied_auth(shared_auth: tuple[Auth, dict[str, list[Any]]]) -> Auth:
    """The service of a module, as if it had just started."""
    found, documents = shared_auth
    await empty_documents(found.mongo.database)
    for name, some in documents.items():
        await found.mongo.database[name].insert_many(some)
    await found.redis.flushdb()
    return found


@pytest.fixture
def auth(request: pytest.FixtureRequest) -> Auth:
    """The service with empty stores."""
    is_shared = request.path.stem.removeprefix("test_") in SHARING
    found: Auth = request.getfixturevalue("emptied_auth" if is_shared else "own_auth")
    return found
