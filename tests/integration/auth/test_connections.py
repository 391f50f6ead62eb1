"""Connections of old keys end, those of new ones stay: with a real server, `auth` and presence."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiomqtt
import nats
import nats.errors
import pytest
import pytest_asyncio
from nats.aio.client import Client

from libs.common.bus import Bus, Outbox, RpcServer, Wakeups
from libs.common.contracts.auth import (
    ApplicationRef,
    ApplicationSecret,
    BlockUser,
    DeviceCredentials,
    DeviceRef,
    Done,
    IntegrationSecret,
)
from libs.common.jobs import cancel_and_wait
from libs.common.store.migrations import migrate
from services.auth import revocations
from services.auth.callout import service as callout
from services.auth.connections import user_block_key
from services.device.commands.store import CommandStore
from services.device.migrations import MIGRATIONS
from services.device.telemetry import presence_watch as looks
from services.device.telemetry import system_account as presence_connections
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.presence_store import PresenceStore, offer_connections
from services.device.telemetry.presence_watch import PresenceWatch
from services.device.telemetry.system_account import SystemAccount
from services.device.things.device_store import DeviceStore
from tests.integration.auth.conftest import Auth
from tests.integration.conftest import MongoOf
from tests.integration.device.telemetry.world import until
from tests.limits import limits_of

WAIT = 20.0


@dataclass
class Presence:
    """What `device` does about connections."""

    auth: Auth
    system: Bus
    store: PresenceStore
    database: Any
    watch: PresenceWatch

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """`device` is there."""
        job = asyncio.ensure_future(self.watch.run())
        rpc = RpcServer(self.auth.bus, "device")
        offer_connections(rpc, self.store, SystemAccount(self.system))
        await rpc.start()
        for _ in range(2):
            await self.system.client.flush()
            await self.auth.bus.client.flush()
        try:
            yield
        finally:
            await rpc.stop()
            await cancel_and_wait(job)

    async def add(self, sn: str) -> str:
        """Add a device; return its key."""
        number = await self.database["devices"].count_documents({}) + 1
        await self.database["devices"].insert_one(
            {
                "_id": number,
                "sn": sn,
                "snKey": sn.upper(),
                "tenant": "t1",
                "model": "m",
                "name": sn,
                "connectStatus": "DISCONNECT",
            }
        )
        return await self.rotate(sn)

    async def rotate(self, sn: str) -> str:
        """Give it another key."""
        reference = DeviceRef(sn, 1, "t1")
        return (await self.auth.call("issue_device_credentials", reference, DeviceCredentials)).key

    async def online(self) -> set[str]:
        rows = self.database["devices"].find({"connectStatus": "ONLINE"}, {"sn": 1})
        return {row["sn"] async for row in rows}

    async def known(self, user: str, number: int) -> None:
        """Return when so many connections of a user are known."""

        async def enough() -> bool:
            return len(await self.store.connections(user.upper())) == number

        await until(enough)


@pytest_asyncio.fixture
async def presence(
    auth: Auth,
    emptied: Callable[[str], str],
    mongo_of: MongoOf,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Presence]:
    """Return presence, which `auth` requests to watch connections."""
    monkeypatch.setattr(revocations, "REAPPLY_AFTER_SECONDS", 0.5)
    mongo = mongo_of(emptied("device"))
    system = await auth.door.bus("sys")
    try:
        await migrate(mongo.database, MIGRATIONS)
        outbox, latest = Outbox(mongo.database, auth.bus), LatestValues(mongo.database)
        devices = DeviceStore(mongo, outbox, limits_of(), latest)
        store, account = PresenceStore(mongo, outbox, devices), SystemAccount(system)
        commands = CommandStore(mongo, outbox, Wakeups(auth.bus, "device")).schedule
        watch = PresenceWatch(system=system, store=store, account=account, reconnects=commands)
        yield Presence(auth, system, store, mongo.database, watch)
    finally:
        await system.drain()


async def connect(auth: Auth, user: str, password: str) -> Client:
    return await nats.connect(
        auth.door.url, user=user, password=password, allow_reconnect=False, connect_timeout=WAIT
    )


async def closes(client: Client) -> None:
    async def closed() -> bool:
        return client.is_closed

    await until(closed, WAIT)


async def test_presence_contains_the_connections_of_the_server(presence: Presence):
    """Connections over MQTT and NATS count; services and applications are no devices."""
    key = await presence.add("Ab12")
    application = await presence.auth.application(events=True)
    account = SystemAccount(presence.system)
    async with presence.watching():
        app = await connect(presence.auth, application.client_id, application.client_secret)
        await presence.known(f"app.{application.client_id}", 1)
        device = aiomqtt.Client(
            "127.0.0.1", presence.auth.door.mqtt_port, username="Ab12", password=key
        )
        async with device:
            await presence.known("Ab12", 1)
            assert await presence.online() == {"Ab12"}
            (connection,) = await presence.store.connections("AB12")
            assert await account.is_open(connection)
        await presence.known("Ab12", 0)
        assert not await account.is_open(connection)
        assert await presence.online() == set()
        await app.close()


async def test_a_rotated_key_ends_its_connections_and_the_new_one_stays(presence: Presence):
    """At once; the sweep that comes later leaves the new key's connection alone."""
    auth = presence.auth
    key = await presence.add("Ab12")
    async with presence.watching():
        old = await connect(auth, "Ab12", key)
        await presence.known("Ab12", 1)
        key = await presence.rotate("Ab12")
        new = await connect(auth, "Ab12", key)
        mqtt = aiomqtt.Client("127.0.0.1", auth.door.mqtt_port, username="Ab12", password=key)
        async with mqtt:
            await presence.known("Ab12", 2)
            await closes(old)
            await settled(auth)
            assert len(await presence.store.connections("AB12")) == 2
            await mqtt.publish("thing/Ab12/up/report", b"{}", qos=1, timeout=WAIT)
        assert new.is_connected
        await auth.call("revoke_device_credentials", DeviceRef("Ab12", 1, "t1"), Done)
        await closes(new)


async def test_a_blocked_user_is_disconnected_and_cannot_reconnect_immediately(presence: Presence):
    """Only this user is blocked, including unreported connections."""
    auth = presence.auth
    loud, quiet = await presence.add("Ab12"), await presence.add("Cd34")
    async with presence.watching():
        neighbour = await connect(auth, "Cd34", quiet)
        client = await connect(auth, "Ab12", loud)
        await auth.call("shut_out", BlockUser("Ab12"), Done)
        await closes(client)
        with pytest.raises(nats.errors.Error):
            await connect(auth, "Ab12", loud)
        assert neighbour.is_connected
        await auth.redis.delete(user_block_key("Ab12"))
        again = await connect(auth, "Ab12", loud)
        await again.close()
        await neighbour.close()


async def settled(auth: Auth) -> None:
    """Return when no revocation is left."""

    async def none() -> bool:
        return await auth.mongo.database["revocations"].find_one({}) is None

    await until(none, WAIT)


async def test_a_key_that_is_rotated_while_nobody_can_close_ends_its_connections_later(
    presence: Presence,
):
    """`device` was away, and so was its knowledge of the connection."""
    auth = presence.auth
    key = await presence.add("Ab12")
    old = await connect(auth, "Ab12", key)
    new = await connect(auth, "Ab12", await presence.rotate("Ab12"))
    assert await auth.mongo.database["revocations"].count_documents({}) == 1
    assert old.is_connected
    async with presence.watching():
        await closes(old)
        await settled(auth)
        assert new.is_connected
    await new.close()


async def test_a_log_in_that_a_rotation_overtakes_ends_too(
    presence: Presence, monkeypatch: pytest.MonkeyPatch
):
    """A login with the old key ends even if it connects after the rotation."""
    auth = presence.auth
    key = await presence.add("Ab12")
    admitted, go_on = asyncio.Event(), asyncio.Event()
    accept = callout.Callout._build_answer

    async def late(self: Any, request: Any) -> bytes:
        answer = await accept(self, request)
        admitted.set()
        await go_on.wait()
        return answer

    async with presence.watching():
        with monkeypatch.context() as patch:
            patch.setattr(callout.Callout, "_build_answer", late)
            coming = asyncio.ensure_future(connect(auth, "Ab12", key))
            await admitted.wait()
        await presence.rotate("Ab12")
        go_on.set()
        await closes(await coming)


async def test_applications_and_integrations_end_with_their_secrets(presence: Presence):
    """A device whose SN is the client id, of another tenant, has nothing to do with it."""
    auth = presence.auth
    application = await auth.application(events=True)
    login = await auth.call("create_integration_login", {"integration": "lamps"}, IntegrationSecret)
    await presence.add(application.client_id)
    async with presence.watching():
        app = await connect(auth, application.client_id, application.client_secret)
        lamps = await connect(auth, login.user, login.secret)
        await presence.known(f"app.{application.client_id}", 1)
        await presence.known(login.user, 1)

        await presence.rotate(application.client_id)
        await settled(auth)
        assert app.is_connected

        reference = ApplicationRef(application.application_id)
        rotated = await auth.call("rotate_application_secret", reference, ApplicationSecret)
        await closes(app)
        again = await connect(auth, application.client_id, rotated.client_secret)
        await auth.call("rotate_integration_secret", {"integration": "lamps"}, IntegrationSecret)
        await closes(lamps)
        await settled(auth)
        assert again.is_connected
        await again.close()


async def test_a_principal_has_so_many_connections_and_no_more(presence: Presence):
    """The next is refused, and nobody else is."""
    auth = presence.auth
    key, other = await presence.add("Ab12"), await presence.add("Cd34")
    async with presence.watching():
        clients = [await connect(auth, "Ab12", key) for _ in range(16)]
        with pytest.raises(nats.errors.Error, match="Authorization"):
            await connect(auth, "Ab12", key)
        clients.append(await connect(auth, "Cd34", other))
        await asyncio.gather(*(client.close() for client in clients))


async def test_a_look_finds_all_while_some_leave(
    presence: Presence, monkeypatch: pytest.MonkeyPatch
):
    """A connected device never becomes OFFLINE, even without events."""
    for module in (presence_connections, looks):
        monkeypatch.setattr(module, "ROWS_PER_ANSWER", 5)
    monkeypatch.setattr(looks, "OVERLAP_ROWS", 2)
    monkeypatch.setattr("services.device.telemetry.presence_watch.SCAN_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(presence.watch, "add", lambda change: None)
    auth = presence.auth
    names = [f"D{number}" for number in range(30)]
    clients = {name: await connect(auth, name, await presence.add(name)) for name in names}
    async with presence.watching():
        staying = set(names[20:])
        for name in names[:20]:
            await clients[name].close()
            await asyncio.sleep(0)

        async def right() -> bool:
            return await presence.online() == staying

        await until(right, WAIT)
    events = await presence.auth.bus.js.stream_info("EVENTS", subjects_filter="event.t1.>")
    gone = {name for name in events.state.subjects or {} if name.endswith(".offline")}
    rows = presence.database["devices"].find({"sn": {"$in": list(staying)}}, {"_id": 1})
    assert not {f"event.t1.device.{row['_id']}.offline" async for row in rows} & gone
    await asyncio.gather(*(clients[name].close() for name in staying))
