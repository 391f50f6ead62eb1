"""A gateway in this process on real sockets, between raw clients and real services."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import httpx
import msgspec
import pytest
import pytest_asyncio
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.identity import HeaderVerifier, Principal, PrincipalKind, generate_keys
from libs.common.identity.device_keys import DeviceKeyCopy, device_credentials_key, device_key_hash
from libs.common.identity.tokens import token_hash
from libs.common.store.redis import Redis, connect_redis
from libs.common.telemetry import Telemetry
from services.gateway.app import create_gateway
from services.gateway.pages import create_pages_application
from services.gateway.settings import GatewaySettings
from tests.servers import Servers
from tests.serving import serving

DEVICES = "/device/openapi/v1/devices"


@dataclass
class Seen:
    """One request as the service got it."""

    method: str
    path: str
    query: str
    fields: list[tuple[str, str]]
    body: bytes = b""
    complete: bool = False
    cancelled: bool = False
    first_part: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.fields)


class Recorder:
    """A service that keeps what it was asked and answers what a test tells it to."""

    def __init__(self) -> None:
        self.port = 0
        self.renew()

    def renew(self) -> "Recorder":
        """Forget everything."""
        self.seen: list[Seen] = []
        self.ready = True
        self.schema: dict[str, Any] = {"openapi": "3.1.0", "paths": {}}
        self.respond: Callable[[Seen, Any, Any], Awaitable[None]] | None = None
        return self

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["path"] == "/readyz":
            await answer(send, b"{}", status=200 if self.ready else 503)
        elif scope["path"] == "/schema/openapi.json":
            await answer(send, msgspec.json.encode(self.schema))
        else:
            await self._record(scope, receive, send)

    async def _record(self, scope: Any, receive: Any, send: Any) -> None:
        fields = [(name.decode(), value.decode("latin-1")) for name, value in scope["headers"]]
        path, query = scope["raw_path"].decode(), scope["query_string"].decode()
        seen = Seen(scope["method"], path, query, fields)
        self.seen.append(seen)
        if self.respond is not None:
            try:
                await self.respond(seen, receive, send)
            except asyncio.CancelledError:
                seen.cancelled = True
                raise
            return
        await read(seen, receive)
        await answer(send, b'{"status":"Success"}')


async def _lifespan(receive: Any, send: Any) -> None:
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})


async def read(seen: Seen, receive: Any) -> None:
    """Read the body of a request into what was seen of it."""
    more, parts = True, bytearray()
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            seen.cancelled = True
            return
        parts += message["body"]
        seen.body = bytes(parts) if len(parts) < 1000 or not message["more_body"] else b"..."
        seen.first_part.set()
        more = message["more_body"]
    seen.complete = True


async def answer(send: Any, body: bytes, status: int = 200, *more: tuple[bytes, bytes]) -> None:
    """Answer a whole body."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *more]})
    await send({"type": "http.response.body", "body": body})


@dataclass
class Gateway:
    """A running gateway and its surroundings."""

    port: int
    redis: Redis
    verifier: HeaderVerifier
    http: httpx.AsyncClient

    async def token(self, kind: PrincipalKind = PrincipalKind.APPLICATION, **more: Any) -> str:
        """Make a valid token of a principal of its own."""
        token = secrets.token_urlsafe(16)
        subject = str(secrets.randbelow(10**9))
        principal = Principal(kind=kind, subject=subject, **({"tenant": "t1"} | more))
        key = f"tw:token:{token_hash(token)}"
        await self.redis.set(key, msgspec.json.encode(principal), ex=60)
        return token

    async def bearer(self, tenant: str = "t1") -> dict[str, str]:
        """Header fields of an application."""
        return {"Authorization": f"Bearer {await self.token(tenant=tenant)}"}

    async def device(self) -> tuple[str, str]:
        """SN and key of a device."""
        sn, key = f"Sn{secrets.token_hex(4)}", secrets.token_hex(8)
        copy = DeviceKeyCopy(sn=sn, device_id=7, tenant="t1", key_hash=device_key_hash(key))
        await self.redis.set(device_credentials_key(sn), msgspec.json.encode(copy), ex=60)
        return sn, key

    async def wire(self, text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection and send `text`, with CRLF for each line end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(text.replace("\n", "\r\n").encode("latin-1"))
        await writer.drain()
        return reader, writer


class LazyPages:
    """The gateway's own pages, built at their first request: that takes longer than most tests."""

    def __init__(
        self,
        readiness: Any,
        catalogue: Any,
        telemetry: Any,
        lifespan: Any,
        *more: Any,
        **options: Any,
    ) -> None:
        self._lifespan = lifespan
        self._build = partial(
            create_pages_application, readiness, catalogue, telemetry, lifespan, *more, **options
        )
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            async with self._lifespan(None):
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        self._app = self._app or self._build()
        await self._app(scope, receive, send)


Start = Callable[..., contextlib.AbstractAsyncContextManager[Gateway]]


@pytest_asyncio.fixture
async def redis(servers: Servers) -> AsyncIterator[Redis]:
    """The client of a test."""
    client = connect_redis(servers.redis_url)
    yield client
    await client.aclose()


@pytest_asyncio.fixture(scope="session")
async def _services() -> AsyncIterator[tuple[Recorder, Recorder]]:
    """Two services for all tests: to start one costs more than most tests do."""
    first, second = Recorder(), Recorder()
    async with serving(first) as first.port, serving(second) as second.port:
        yield first, second


@pytest.fixture
def device(_services: tuple[Recorder, Recorder]) -> Recorder:
    """The service `device`, as new."""
    return _services[0].renew()


@pytest.fixture
def auth(_services: tuple[Recorder, Recorder]) -> Recorder:
    """The service `auth`, as new."""
    return _services[1].renew()


@pytest.fixture
def start(servers: Servers, redis: Redis, device: Recorder, auth: Recorder) -> Start:
    """Start a gateway with settings of a test's own."""

    @contextlib.asynccontextmanager
    async def start(**settings: Any) -> AsyncIterator[Gateway]:
        private, public = generate_keys()
        given = {
            "redis_url": servers.redis_url,
            "nats_url": servers.nats_url,
            "internal_private_key": private,
            "upstreams": f"auth=http://127.0.0.1:{auth.port},device=http://127.0.0.1:{device.port}",
        }
        with patch("services.gateway.app.create_pages_application", LazyPages):
            door = await create_gateway(
                GatewaySettings(**(given | settings)), Telemetry(None, MeterProvider())
            )
        async with (
            serving(
                door,
                door.tunnels.create_protocol,
                door.connections.create_protocol,
                headers=door.headers,
            ) as port,
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=10, verify=False
            ) as http,
        ):
            yield Gateway(port, redis, HeaderVerifier(public), http)

    return start


@pytest_asyncio.fixture
async def gateway(start: Start) -> AsyncIterator[Gateway]:
    """A gateway with settings as they come."""
    async with start() as running:
        yield running
