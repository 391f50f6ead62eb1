"""`kill -9` of what tells users of alarms: each one that a user is owed arrives, none is lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pytest
from aiohttp import web
from nats.js.errors import NotFoundError

from libs.common.bus import EVENTS, Bus, OutgoingMessage, RpcServer
from libs.common.bus.subjects import alarm_event
from libs.common.clock import now_ms
from libs.common.contracts.access import Access, ResourceType, UserRef
from libs.common.contracts.events import AlarmChanged, DeviceProfile
from libs.common.identity import HeaderSigner, generate_keys
from libs.common.identity.functions import Function
from libs.common.store.mongo import Mongo
from tests.console import AskedByUsers, Grants
from tests.faults.replica import Replica
from tests.integration.workflow.conftest import PlayedDevice
from tests.servers import Servers

pytestmark = pytest.mark.slow

PATH = "/alarm-notifications"
AT_ONCE, DIGEST, QUIET = 2, 3, 4
"""Users, and the settings of their notifications."""
DEATHS = 6
ROUND = 5
"""Alarms that are raised at a time, three times for each death: a message lists them all."""


@dataclass
class Hook:
    """Counts how often each user was notified of each alarm by webhook."""

    notified: Counter[tuple[int, int]] = field(default_factory=Counter)
    more: int = 0
    """Alarms that were only counted."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        """Record a notification; the sender may be dead before it gets the answer."""
        user = int(request.match_info["user"])
        body = await request.json()
        self.notified.update((user, alarm["alarmId"]) for alarm in body["alarms"])
        self.more += body["more"]
        self.reached.set()
        await asyncio.sleep(0.05)
        return web.Response()


@dataclass
class World(AskedByUsers):
    """Two replicas of `workflow`, and users with webhooks."""

    http: httpx.AsyncClient
    grants: Grants
    signer: HeaderSigner
    replicas: list[Replica]
    bus: Bus
    mongo: Mongo
    hook: Hook
    url: str
    published: int = 0

    async def subscribe(self, user: int, **more: Any) -> None:
        """Subscribe a user to all alarms of the devices that the user sees."""
        body = {"webhook": {"url": f"{self.url}/{user}"}, **more}
        await self.user(user, Function.DEVICE_VIEW).done("PUT", PATH, body)

    async def publish(self) -> None:
        """Publish a round of alarms."""
        await self.bus.publish([_raised(self.published + one) for one in range(ROUND)])
        self.published += ROUND

    async def due(self, *users: int) -> None:
        """Make the waiting notifications of these users due now."""
        subscribers = self.mongo.database["alarm_notifications"]
        await subscribers.update_many({"_id": {"$in": users}}, {"$set": {"due.WEBHOOK": 1}})


def _raised(alarm: int) -> OutgoingMessage:
    device = DeviceProfile(
        device_id=5, sn="SN", name="oven", model="OVEN", thing_key="direct.device.SN"
    )
    event = AlarmChanged(
        event_id=uuid4().hex,
        created_at=now_ms(),
        tenant="default",
        change="raised",
        alarm_id=alarm,
        severity="MAJOR",
        content="too hot",
        raised_at=now_ms(),
        device=device,
    )
    return OutgoingMessage(alarm_event("default", 5, "raised"), msgspec.json.encode(event))


async def _access(_: UserRef) -> Access:
    return Access(1, frozenset({Function.DEVICE_VIEW}), super_admin=False)


async def _wait_for_consumer(bus: Bus) -> None:
    """Wait until the consumer of alarms exists."""
    async with asyncio.timeout(60):
        while True:
            with suppress(NotFoundError):
                await bus.js.consumer_info(EVENTS, "alarm-notifications")
                return
            await asyncio.sleep(0.1)


@pytest.fixture
async def hook() -> AsyncIterator[tuple[Hook, str]]:
    """Start a web server on 127.0.0.1; return the hook and the URL."""
    found, app = Hook(), web.Application()
    app.router.add_post("/{user}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield found, f"http://{host}:{port}"
    await runner.cleanup()


@pytest.fixture
async def world(
    servers: Servers, database: str, tmp_path: Path, hook: tuple[Hook, str]
) -> AsyncIterator[World]:
    """Two replicas on the servers of the tests; `auth` and `device` are played."""
    private, public = generate_keys()
    environment = {
        "THINGWAY_MONGO_URL": servers.mongo_url,
        "THINGWAY_MONGO_DATABASE": database,
        "THINGWAY_NATS_URL": servers.nats_url,
        "THINGWAY_INTERNAL_PUBLIC_KEY": public,
        "THINGWAY_SECRETS_KEY": public,
        "THINGWAY_OUTGOING_NETWORKS": "127.0.0.0/8",
    }
    replicas = [Replica("workflow", environment, tmp_path / f"{one}.log") for one in range(2)]
    bus = await Bus.connect(servers.nats_url, name="others", stream_replicas=1)
    mongo = Mongo(servers.mongo_url, database)
    device, people = PlayedDevice(bus), RpcServer(bus, "auth")
    people.offer("get_access", UserRef, _access)
    await device.start()
    await people.start()
    try:
        for replica in replicas:
            await replica.start()
        await _wait_for_consumer(bus)
        url = f"http://127.0.0.1:{replicas[0].port}"
        async with Grants(bus) as grants, httpx.AsyncClient(base_url=url, timeout=30) as http:
            for user in (AT_ONCE, DIGEST, QUIET):
                grants.give(user, ResourceType.DEVICE, 5)
            signer = HeaderSigner(private)
            yield World(http, grants, signer, replicas, bus, mongo, *hook)
    finally:
        for replica in replicas:
            replica.kill()
        await people.stop()
        await device.stop()
        await bus.drain()
        await mongo.close()


async def test_every_user_is_notified_of_every_alarm(world: World) -> None:
    """Kill one replica after the other: immediate, grouped and quiet-hours delivery.

    Each kill may repeat one message, and no other one.
    """
    await world.subscribe(AT_ONCE)
    await world.subscribe(DIGEST, digest_minutes=1440)
    await world.subscribe(QUIET, quiet_hours={"begin": "00:00", "end": "23:59"})
    for number in range(DEATHS):
        if number == DEATHS // 2:
            await world.subscribe(QUIET)
        world.hook.reached.clear()
        await world.publish()
        await world.due(DIGEST, QUIET)
        async with asyncio.timeout(120):
            await world.hook.reached.wait()
        replica = world.replicas[number % 2]
        await world.publish()
        replica.kill()
        await world.publish()
        await replica.start()
    expected = {(user, alarm) for user in (2, 3, 4) for alarm in range(world.published)}
    with suppress(TimeoutError):
        async with asyncio.timeout(120):
            while expected - set(world.hook.notified):
                await world.due(DIGEST)
                await asyncio.sleep(0.5)
    assert (expected - set(world.hook.notified), world.hook.more) == (set(), 0)
    async with asyncio.timeout(60):
        while await world.mongo.database["alarm_notices"].find_one({}) is not None:
            await asyncio.sleep(0.2)
    assert max(world.hook.notified.values()) <= 1 + DEATHS
