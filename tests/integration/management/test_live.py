"""Live updates: who subscribes and may see it hears every change once, on any replica."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import pytest_asyncio
import websockets
from opentelemetry.sdk.metrics import MeterProvider
from websockets.asyncio.client import ClientConnection, connect

from libs.common.bus import Bus, Outgoing, RpcServer
from libs.common.bus.subjects import device_event
from libs.common.contracts.access import Access, ResourceType, UserRef
from libs.common.contracts.entities import ResolvedEntities, ResolvedEntity, ResolveEntities
from libs.common.contracts.events import DeviceEventReported, DeviceProfile, PropertiesReported
from libs.common.errors import Unauthenticated
from libs.common.identity import PRINCIPAL_HEADER, HeaderSigner, Kind, Principal, make_keys
from libs.common.identity.access import access_key
from libs.common.identity.tokens import access_token_key, token_hash
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis, connect_redis
from libs.common.telemetry import Telemetry
from services.management.app import build_app
from services.management.live.frames import MOST_KEYS
from services.management.live.protocol import PatientProtocol
from services.management.live.subscriber import MOST_WAITING
from services.management.migrations import MIGRATIONS
from services.management.settings import ManagementSettings
from tests.console import Grants
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
            kind=Kind.USER,
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

    async def revoke(self, socket: Any) -> None:
        """End the token of a socket."""
        await self.redis.delete(access_token_key(token_hash(socket.token)))

    async def change_grants(self, user_id: int, kind: ResourceType, *ids: Any) -> None:
        """Give a user these resources and no others, as `auth` does it."""
        self.grants.take(user_id)
        self.grants.give(user_id, kind, *ids)
        await self.redis.set(access_key("default"), self.grants.version)

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
        await self.bus.publish([Outgoing(subject, payload, uuid4().hex)])


@pytest_asyncio.fixture
async def world(servers, database) -> AsyncIterator[World]:
    """Two replicas on real ports; `auth` and `device` are played."""
    private, public = make_keys()
    settings = ManagementSettings(internal_public_key=public, secrets_key=public)
    async with contextlib.AsyncExitStack() as stack:
        mongo = Mongo(servers.mongo_url, database)
        stack.push_async_callback(mongo.close)
        redis = connect_redis(servers.redis_url)
        stack.push_async_callback(redis.aclose)
        await redis.flushdb()
        await migrate(mongo.database, MIGRATIONS)
        bus = await Bus.connect(servers.nats_url, name="device", streams=1)
        stack.push_async_callback(bus.drain)
        auth = await Bus.connect(servers.nats_url, name="auth")
        stack.push_async_callback(auth.drain)
        grants = await stack.enter_async_context(Grants(auth))
        gone: set[int] = set()
        await _play(bus, grants, gone, stack)
        ports = []
        for _ in range(2):
            own = await Bus.connect(servers.nats_url, name="management", streams=1)
            stack.push_async_callback(own.drain)
            app = build_app(settings, mongo, redis, own, Telemetry(None, MeterProvider()))
            serves = serving(app, PatientProtocol)
            ports.append(await stack.enter_async_context(serves))
        while len(await _consumers(bus)) < 2:
            await asyncio.sleep(0.01)
        yield World(ports, bus, redis, grants, HeaderSigner(private), gone)


async def _consumers(bus: Bus) -> list[str]:
    found = await bus.js.consumers_info("EVENTS")
    return [one.name for one in found if one.name.startswith("live-")]


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


def _subscription(*keys: str) -> str:
    return json.dumps({"event_type": "Exchange", "payload": {"entity_key": keys}})


async def _subscribe(socket: ClientConnection, *keys: str) -> None:
    """Subscribe; the echo of a heartbeat says that it is done."""
    await socket.send(_subscription(*keys))
    await _echo(socket)


async def _echo(socket: ClientConnection) -> None:
    beat = json.dumps({"event_type": "Heartbeat", "payload": "ping"})
    await socket.send(beat)
    assert await socket.recv() == beat


async def _next(socket: ClientConnection) -> Any:
    async with asyncio.timeout(30):
        return json.loads(await socket.recv())


async def test_a_change_is_pushed_with_its_values(world: World):
    """The keys stand as documented, the values beside them; other keys are not told."""
    async with world.socket() as socket:
        await _subscribe(socket, KEY, "direct.device.S2.temperature", "nonsense")
        await world.report(temperature=21.5, humidity=40)
        assert await _next(socket) == {
            "event_type": "Exchange",
            "payload": {
                "entity_key": [KEY],
                "values": {KEY: {"value": 21.5, "timestamp": 1234}},
            },
        }


async def test_members_of_a_struct_have_keys_of_their_own(world: World):
    """A child is pushed under its key, and so is the object that it belongs to."""
    async with world.socket() as socket:
        await _subscribe(socket, "direct.device.S1.gps", "direct.device.S1.gps.lat")
        await world.report(gps={"lat": 1.5, "lon": 2.5})
        values = (await _next(socket))["payload"]["values"]
        assert values["direct.device.S1.gps.lat"]["value"] == 1.5
        assert values["direct.device.S1.gps"]["value"] == {"lat": 1.5, "lon": 2.5}


async def test_an_event_of_the_tsl_is_a_change_too(world: World):
    """Its key is the event's, its outputs are children."""
    async with world.socket() as socket:
        await _subscribe(socket, "direct.device.S1.alarm.level")
        event = DeviceEventReported(
            event_id="e1",
            created_at=5,
            tenant="default",
            device=DeviceProfile(device_id=7, sn="S1", thing_key="direct.device.S1"),
            ts=9,
            tsl_id="alarm",
            event_type="WARN",
            outputs={"level": 3},
        )
        subject = device_event("default", 7, "event")
        await world.bus.publish([Outgoing(subject, msgspec.json.encode(event), "m1")])
        values = (await _next(socket))["payload"]["values"]
        assert values == {"direct.device.S1.alarm.level": {"value": 3, "timestamp": 9}}


async def test_a_subscription_replaces_the_one_before(world: World):
    """Each socket has its own set; an empty one hears nothing more."""
    async with world.socket() as one, world.socket() as other:
        await _subscribe(one, "direct.device.S1.humidity")
        await _subscribe(one, KEY)
        await _subscribe(other, "direct.device.S1.humidity")
        await world.report(temperature=1, humidity=2)
        assert (await _next(one))["payload"]["entity_key"] == [KEY]
        assert (await _next(other))["payload"]["entity_key"] == ["direct.device.S1.humidity"]
        await _subscribe(one)
        await world.report(temperature=3, humidity=4)
        assert (await _next(other))["payload"]["values"]["direct.device.S1.humidity"]["value"] == 4
        await _echo(one)


async def test_an_id_stands_for_its_key(world: World):
    """Some consoles subscribe with entity ids; they are told what they asked for."""
    async with world.socket() as socket:
        await _subscribe(socket, str(ENTITY_ID), "999999")
        await world.report(temperature=1)
        assert (await _next(socket))["payload"]["entity_key"] == [str(ENTITY_ID)]


async def test_every_replica_tells_every_change_once(world: World):
    """Sockets on either replica hear each report, in order, and a second copy of none."""
    async with world.socket(replica=0) as one, world.socket(replica=1) as other:
        for socket in (one, other):
            await _subscribe(socket, KEY)
        for number in range(20):
            await world.report(event_id=f"r{number}", temperature=number)
            await world.report(event_id=f"r{number}", temperature=number)
        for socket in (one, other):
            told = [(await _next(socket))["payload"]["values"][KEY]["value"] for _ in range(20)]
            assert told == list(range(20))
            await _echo(socket)


async def test_what_is_not_granted_is_not_told(world: World):
    """Without a grant nothing comes; with one of device, group, integration or entity it does."""
    async with world.socket(9, super_admin=False) as socket:
        await _subscribe(socket, KEY)
        await world.report(temperature=1)
        await _flushed(world)
        await _echo(socket)
        for kind, identity in (
            (ResourceType.DEVICE, 7),
            (ResourceType.DEVICE_GROUP, 4),
            (ResourceType.INTEGRATION, "direct"),
            (ResourceType.ENTITY, ENTITY_ID),
        ):
            await world.change_grants(9, kind, identity)
            await _told(world, socket)
        await world.change_grants(9, ResourceType.DEVICE, 8)
        await _silent(world, socket)


async def _flushed(world: World) -> None:
    """Wait until another socket has heard what was reported before."""
    async with world.socket() as socket:
        await _subscribe(socket, KEY)
        await world.report(temperature=-1)
        await _next(socket)


async def _told(world: World, socket: ClientConnection) -> None:
    """Report until the socket is told."""
    while True:
        await world.report(temperature=1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                assert json.loads(await socket.recv())["payload"]["entity_key"] == [KEY]
                return


async def _silent(world: World, socket: ClientConnection) -> None:
    """Report until the socket is told no more."""
    while True:
        await world.report(temperature=1)
        await _flushed(world)
        beat = json.dumps({"event_type": "Heartbeat", "payload": uuid4().hex})
        await socket.send(beat)
        heard = []
        while not heard or heard[-1] != beat:
            heard.append(await socket.recv())
        if len(heard) == 1:
            return


async def test_other_tenants_are_not_told(world: World):
    """The same key in another tenant is another entity."""
    async with world.socket() as socket:
        await _subscribe(socket, KEY)
        await world.report(tenant="other", temperature=1)
        await world.report(temperature=2)
        assert (await _next(socket))["payload"]["values"][KEY]["value"] == 2


async def test_a_revoked_token_closes_its_sockets(world: World):
    """Soon after a token has ended its sockets end, with a reason; others stay."""
    async with world.socket() as one, world.socket() as other:
        await world.revoke(one)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await _next(one)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
            1008,
            "the token is no longer valid",
        )
        await _echo(other)


async def test_a_user_who_is_gone_is_closed(world: World):
    """When `auth` knows a user no more, the sockets end."""
    async with world.socket(9, super_admin=False) as socket:
        world.gone.add(9)
        await world.change_grants(8, ResourceType.DEVICE, 1)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await _next(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.reason == "the user is gone"


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        ("nonsense", "not JSON"),
        ("[]", "object"),
        ('{"payload": 1}', "event_type"),
        ('{"event_type": "Exchange"}', "object"),
        ('{"event_type": "Exchange", "payload": {"entity_key": "k"}}', "entity_key"),
        ('{"event_type": "exchange", "payload": {"entity_key": [1]}}', "entity_key"),
        (_subscription(*(f"a.b.{n}" for n in range(MOST_KEYS + 1)))[:60000], "not JSON"),
    ],
)
async def test_a_malformed_frame_closes_with_a_reason(world: World, frame: str, named: str):
    """The reason says what is wrong with it."""
    async with world.socket() as socket:
        await socket.send(frame)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await _next(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1007
        assert named in closed.value.rcvd.reason


async def test_unknown_kinds_of_frames_are_passed_over(world: World):
    """A newer client may say what this server does not know."""
    async with world.socket() as socket:
        await socket.send('{"event_type": "Weather", "payload": {"wind": 3}}')
        await _echo(socket)


async def test_a_thousand_keys_that_do_not_exist_cost_nothing(world: World):
    """They are accepted, and a key among them that exists is told."""
    async with world.socket() as socket:
        await _subscribe(socket, *(f"direct.device.N{n}.t" for n in range(1000)), KEY)
        await world.report(temperature=1)
        assert (await _next(socket))["payload"]["entity_key"] == [KEY]


async def test_a_slow_reader_gets_the_latest_of_each_key(world: World):
    """What it does not take is not collected for ever: in the end it has the newest value."""
    async with world.socket() as fast, world.socket(max_queue=1) as slow:
        for socket in (fast, slow):
            await _subscribe(socket, KEY, "direct.device.S1.text")
        text, last = "x" * 60_000, MOST_WAITING * 3
        for number in range(last + 1):
            await world.report(temperature=number, text=text)
            await _next(fast)
        heard = [(await _next(slow))["payload"]["values"][KEY]["value"]]
        while heard[-1] != last:
            heard.append((await _next(slow))["payload"]["values"][KEY]["value"])
        assert heard == sorted(heard)
        assert len(heard) < last


async def test_without_a_principal_it_stays_shut(world: World):
    """The service answers only through the gateway."""
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with connect(f"ws://127.0.0.1:{world.ports[0]}/websocket"):
            pass
    assert refused.value.response.status_code == 403


async def test_an_application_stays_outside(world: World):
    """Live updates are for users."""
    principal = Principal(kind=Kind.APPLICATION, tenant="default", subject="1")
    headers = {PRINCIPAL_HEADER: world.signer.sign(principal)}
    url = f"ws://127.0.0.1:{world.ports[0]}/websocket"
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with connect(url, additional_headers=headers):
            pass
    assert refused.value.response.status_code == 403
