"""Two replicas of `management` that tell what changes; `auth` and `device` are played."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
import pytest_asyncio
from opentelemetry.sdk.metrics import MeterProvider
from websockets.asyncio.client import ClientConnection, connect

from libs.common.bus import Bus, OutgoingMessage, RpcServer
from libs.common.bus.subjects import device_event
from libs.common.contracts.access import Access, ResourceType, UserRef
from libs.common.contracts.entities import ResolvedEntities, ResolvedEntity, ResolveEntities
from libs.common.contracts.events import DeviceProfile, PropertiesReported
from libs.common.contracts.mqtt import live_mqtt_user
from libs.common.errors import Unauthenticated
from libs.common.identity import (
    PRINCIPAL_HEADER,
    HeaderSigner,
    Principal,
    PrincipalKind,
    generate_keys,
)
from libs.common.identity.access import access_version_key
from libs.common.identity.tokens import access_token_key, live_password_key, token_hash
from libs.common.store.migrations import migrate
from libs.common.store.redis import Redis, connect_redis
from libs.common.telemetry import Telemetry
from services.management.app import build_app
from services.management.live.sockets import LiveSocketProtocol
from services.management.migrations import MIGRATIONS
from services.management.settings import ManagementSettings
from tests.console import Grants
from tests.lending import lent
from tests.serving import serving

KEY = "direct.device.S1.temperature"
ENTITY_ID = 7 * 8192 + 1


@dataclass
class World:
    """Two replicas of the service, and what is around them."""

    ports: list[int]
    bus: Bus
    redis: Redis
    grants: Grants
    signer: HeaderSigner
    gone: set[int]
    """Users whom `auth` no longer knows."""

    @contextlib.asynccontextmanager
    async def socket(
        self, user_id: int = 1, *, replica: int = 0, super_admin: bool = True, **options: Any
    ) -> AsyncIterator[ClientConnection]:
        """A socket as the gateway opens it, with a token that is valid."""
        token = f"{user_id}-{uuid4().hex}"
        await self.redis.set(access_token_key(token_hash(token)), "{}")
        principal = Principal(
            kind=PrincipalKind.USER,
            tenant="default",
            subject=str(user_id),
            super_admin=super_admin,
            access=self.grants.version,
        )
        headers = {
            PRINCIPAL_HEADER: self.signer.sign(principal),
            "x-thingway-token": token_hash(token),
        }
        url = f"ws://127.0.0.1:{self.ports[replica]}/websocket"
        async with connect(url, additional_headers=headers, compression=None, **options) as socket:
            socket.token = token  # type: ignore[attr-defined]
            yield socket

    async def page(self, user_id: int = 1, tenant: str = "default") -> tuple[str, str]:
        """The user name and the password of a page, as `auth` gives them."""
        password = uuid4().hex
        principal = Principal(kind=PrincipalKind.USER, tenant=tenant, subject=str(user_id))
        await self.redis.set(live_password_key(password), msgspec.json.encode(principal))
        return live_mqtt_user(user_id), password

    async def revoke(self, socket: Any) -> None:
        """End the token of a socket."""
        await self.redis.delete(access_token_key(token_hash(socket.token)))

    async def change_grants(self, user_id: int, kind: ResourceType, *ids: Any) -> None:
        """Give a user these resources and no others, as `auth` does it."""
        self.grants.take(user_id)
        self.grants.give(user_id, kind, *ids)
        await self.redis.set(access_version_key("default"), self.grants.version)

    async def report(self, event_id: str = "", tenant: str = "default", **values: Any) -> None:
        """Device 7 (`S1`, of `direct`) reports."""
        event = PropertiesReported(
            event_id=event_id or uuid4().hex,
            created_at=5,
            tenant=tenant,
            device=DeviceProfile(device_id=7, sn="S1", thing_key="direct.device.S1", group_id=4),
            ts=1234,
            properties=values,
        )
        payload = msgspec.json.encode(event)
        subject = device_event(tenant, 7, "reported")
        await self.bus.publish([OutgoingMessage(subject, payload, uuid4().hex)])

    async def drain(self) -> None:
        """Wait until both replicas have handled all events."""
        mark = uuid4().hex
        async with self.socket(replica=0) as one, self.socket(replica=1) as other:
            for socket in (one, other):
                await socket.send(
                    json.dumps({"event_type": "Exchange", "payload": {"entity_key": [KEY]}})
                )
                beat = json.dumps({"event_type": "Heartbeat", "payload": "ping"})
                await socket.send(beat)
                async with asyncio.timeout(30):
                    while await socket.recv() != beat:
                        pass  # a change
            await self.report(temperature=mark)
            for socket in (one, other):
                async with asyncio.timeout(30):
                    while mark not in str(await socket.recv()):
                        pass  # an earlier change


@pytest_asyncio.fixture(scope="module")
async def replicas(servers, emptied, mongo_of) -> AsyncIterator[World]:
    """Two replicas on real ports, for the tests of a module; `auth` and `device` are played."""
    private, public = generate_keys()
    settings = ManagementSettings(internal_public_key=public, secrets_key=public)
    silent = Telemetry(None, MeterProvider())
    async with contextlib.AsyncExitStack() as stack:
        mongo = mongo_of(emptied("management of a module"))
        redis = connect_redis(servers.redis_url)
        stack.push_async_callback(redis.aclose)
        await redis.flushdb()
        await migrate(mongo.database, MIGRATIONS)
        bus = await Bus.connect(servers.nats_url, name="device", stream_replicas=1)
        stack.push_async_callback(bus.drain)
        auth = await Bus.connect(servers.nats_url, name="auth")
        stack.push_async_callback(auth.drain)
        grants = await stack.enter_async_context(Grants(auth))
        gone: set[int] = set()
        await _play(bus, grants, gone, stack)
        ports = []
        for _ in range(2):
            own = await Bus.connect(servers.nats_url, name="management", stream_replicas=1)
            stack.push_async_callback(own.drain)
            wired = partial(build_app, settings, mongo, redis, own, silent)
            app = stack.enter_context(lent(wired))
            serves = serving(app, LiveSocketProtocol)
            ports.append(await stack.enter_async_context(serves))
        while len(await _consumers(bus)) < 2:
            await asyncio.sleep(0.01)
        yield World(ports, bus, redis, grants, HeaderSigner(private), gone)


@pytest_asyncio.fixture
async def world(replicas: World) -> World:
    """Two replicas that know of no users, and have handled all events of earlier tests."""
    replicas.gone.clear()
    await replicas.drain()
    await replicas.redis.flushdb()
    for user_id in range(1, 10):
        replicas.grants.take(user_id)
    return replicas


async def _consumers(bus: Bus) -> list[str]:
    found = await bus.js.consumers_info("EVENTS")
    return [entry.name for entry in found if entry.name.startswith("live-")]


async def _play(bus: Bus, grants: Grants, gone: set[int], stack: contextlib.AsyncExitStack) -> None:
    """`auth` says what users may do, `device` which entities there are."""

    async def access(user: UserRef) -> Access:
        if user.user_id in gone:
            raise Unauthenticated("gone")
        return Access(grants.version, frozenset(), super_admin=user.user_id == 1)

    async def resolve(wanted: ResolveEntities) -> ResolvedEntities:
        entity = ResolvedEntity(
            id=ENTITY_ID,
            key=KEY,
            thing_id=7,
            integration="direct",
            device=True,
            member="temperature",
            name="Temperature",
            type="PROPERTY",
            value_type="DOUBLE",
        )
        known = KEY in wanted.keys or ENTITY_ID in wanted.ids
        return ResolvedEntities([entity] if known else [])

    for service, operation, request, answer in (
        ("auth", "get_access", UserRef, access),
        ("device", "resolve_entities", ResolveEntities, resolve),
    ):
        rpc = RpcServer(bus, service)
        rpc.offer(operation, request, answer)
        await rpc.start()
        stack.push_async_callback(rpc.stop)
    await bus.client.flush()
