"""`openapi-client` against a small other platform; `device` is played."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.web import Response
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.bus import Bus
from libs.common.contracts.integrations import (
    AddDevice,
    DeviceRef,
    KnownIntegrations,
    NewDevice,
)
from libs.common.errors import InvalidInput, NotFound, ThingwayError
from libs.common.identity import generate_keys
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.store.redis import connect_redis
from libs.common.telemetry import Telemetry
from services.management.app import build_app
from services.management.migrations import MIGRATIONS
from services.management.settings import ManagementSettings
from tests.integration.management.played import PlayedDevice, playing
from tests.integration.management.remote import (
    CLIENT_ID,
    SECRET,
    TSL,
    Platform,
    refusal,
    serving,
)
from tests.lending import lent
from tests.lifespan import running

NOW = int(time.time() * 1000)
HOUR = 3_600_000


class World:
    """A `management` that may call loopback, a played `device`, and another platform."""

    def __init__(self, servers: Any, mongo: Mongo, played: PlayedDevice, remote: Platform) -> None:
        self.played = played
        self.remote = remote
        self.mongo = mongo
        self.key = generate_keys()[1]
        self._servers = servers
        self._stack = AsyncExitStack()

    async def start(self, allowed: str = "127.0.0.0/8") -> None:
        """Begin a replica."""
        stack = self._stack = AsyncExitStack()
        redis = connect_redis(self._servers.redis_url)
        stack.push_async_callback(redis.aclose)
        self.bus = await Bus.connect(self._servers.nats_url, name="management", stream_replicas=1)
        stack.push_async_callback(self.bus.drain)
        await migrate(self.mongo.database, MIGRATIONS)
        settings = ManagementSettings(
            internal_public_key=self.key, secrets_key=self.key, outgoing_networks=allowed
        )
        parts = settings, self.mongo, redis, self.bus, Telemetry(None, MeterProvider())
        app = stack.enter_context(lent(lambda: build_app(*parts)))
        await stack.enter_async_context(running(app))
        await self.played.ready()

    async def rpc(self, operation: str, request: Any, answer: type) -> Any:
        """Ask management."""
        return await self.played._client.call(f"rpc.management.{operation}", request, answer)

    async def stop(self) -> None:
        """End the replica."""
        await self._stack.aclose()

    async def configure(self, **changes: Any) -> None:
        """Set all that is needed, as people do."""
        wanted = {"base_url": self.remote.url, "client_id": CLIENT_ID, "client_secret": SECRET}
        await self.played.update(wanted | changes)

    async def sync(self) -> dict[str, Any]:
        """Sync, and give what the integration shows at its end."""
        own = self.played.own.setdefault("default", {})
        own.pop("sync_status", None)
        await self.played.call("sync")
        await self.played.until(lambda: own.get("sync_status") in {"done", "failed"})
        return own

    def told(self) -> list[tuple[str, int, Any]]:
        """Reports that were taken over."""
        return sorted(
            (report.identifier, report.ts, report.properties) for report in self.played.reports
        )


@pytest_asyncio.fixture
async def world(servers, database, mongo_of) -> AsyncIterator[World]:
    async with (
        serving(Platform()) as remote,
        playing(servers.nats_url, "openapi-client") as played,
    ):
        made = World(servers, mongo_of(database), played, remote)
        await made.start()
        yield made
        await made.stop()


async def test_a_sync_brings_devices_with_tsl_and_history(world: World):
    """Each device once, under its SN, with the product's TSL and every report at its own time."""
    world.remote.add(7, "A7", (NOW - HOUR, {"level": 1}), (NOW - HOUR + 1, {"level": 2}))
    world.remote.add(8, "B8", *((NOW - HOUR + n, {"level": n}) for n in range(25)))
    await world.configure()
    shown = await world.sync()
    assert (shown["sync_status"], shown["synced_devices"], shown["synced_reports"]) == (
        "done", 2, 27,
    )  # fmt: skip
    devices = {device.identifier: device for device in world.played.devices.values()}
    assert devices["A7"].name == "device A7"
    assert devices["A7"].model == "TANK-9"
    assert devices["A7"].additional == {"deviceId": "7", "baseUrl": world.remote.url}
    assert world.played.tsls["TANK-9"] == TSL
    expected = [("A7", NOW - HOUR, {"level": 1}), ("A7", NOW - HOUR + 1, {"level": 2})]
    expected += [("B8", NOW - HOUR + n, {"level": n}) for n in range(25)]
    assert world.told() == expected


async def test_another_sync_copies_only_new_reports(world: World):
    """It includes late reports with a time before the newest, and copies none twice."""
    world.remote.add(7, "A7", (NOW - HOUR, {"level": 1}))
    await world.configure()
    await world.sync()
    assert (await world.sync())["synced_reports"] == 0
    late, new = (NOW - HOUR - 1000, {"level": 0}), (NOW - 5, {"level": 2})
    world.remote.history["7"] += [{"ts": ts, "properties": p} for ts, p in (late, new)]
    assert (await world.sync())["synced_reports"] == 2
    assert world.told() == [("A7", *late), ("A7", NOW - HOUR, {"level": 1}), ("A7", *new)]


async def test_a_sync_that_broke_off_is_resumed(world: World):
    """It goes on behind the page that was taken over last, in the replica that comes next."""
    world.remote.add(7, "A7", *((NOW - HOUR + n, {"level": n}) for n in range(25)))
    pages: list[str] = []

    def fail_at_the_third(method: str, path: str):
        if path.endswith("/history"):
            pages.append(path)
            return refusal(503, "busy") if len(pages) >= 3 else None
        return None

    world.remote.failing = fail_at_the_third
    await world.configure()
    shown = await world.sync()
    assert shown["sync_status"] == "failed"
    assert "busy" in shown["last_error"]
    assert len(world.told()) == 20
    world.remote.failing = lambda *_: None
    await world.stop()
    await world.start()
    assert (await world.sync())["sync_status"] == "done"
    assert world.told() == [("A7", NOW - HOUR + n, {"level": n}) for n in range(25)]
    told_as = [report.report_id for report in world.played.reports]
    assert len(set(told_as)) == 25


async def test_a_sync_survives_its_replica(world: World):
    """The next one goes on with it, without being asked."""
    world.remote.add(7, "A7", *((NOW - HOUR + n, {"level": n}) for n in range(25)))
    pages: list[str] = []

    def busy_from_the_third_on(method: str, path: str):
        pages.extend([path] if path.endswith("/history") else [])
        return refusal(503, "busy", pause=60) if len(pages) >= 3 else None

    world.remote.failing = busy_from_the_third_on
    await world.configure()
    await world.played.call("sync")
    await world.remote.until(lambda: len(pages) >= 3)
    await world.stop()
    assert world.played.own["default"]["sync_status"] == "running"
    world.remote.failing = lambda *_: None
    await world.start()
    await world.played.until(lambda: world.played.own["default"]["sync_status"] == "done")
    assert world.told() == [("A7", NOW - HOUR + n, {"level": n}) for n in range(25)]


async def test_deleted_devices_stay_deleted_until_they_are_added(world: World):
    """A sync skips them; adding by SN or id restores them."""
    world.remote.add(7, "A7", (NOW - HOUR, {"level": 1}))
    await world.configure()
    await world.sync()
    (device,) = world.played.devices.values()
    await world.played.delete(device)
    assert (await world.sync())["synced_devices"] == 0
    assert world.played.devices == {}

    links = world.mongo.database["openapi_links"]
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    await links.update_one({}, {"$set": {"leftAt": long_ago}})
    await world.sync()
    assert (await links.find_one())["leftAt"] > long_ago  # it is forgotten when it is not seen

    again = await world.played.add({"device": "7"})
    assert "leftAt" not in await links.find_one()
    assert (again.identifier, again.model) == ("A7", "TANK-9")
    assert (await world.sync())["synced_devices"] == 1
    assert list(world.played.devices) == [again.device_id]


@pytest.mark.parametrize("told", [True, False])
async def test_a_device_that_is_added_again_gets_its_history_again(world: World, told: bool):
    """Its history here was deleted with it, also if the integration was not running."""
    world.remote.add(7, "A7", (NOW - HOUR, {"level": 1}), (NOW - 5, {"level": 2}))
    await world.configure()
    await world.sync()
    (device,) = world.played.devices.values()
    if told:
        await world.played.delete(device)
    world.played.devices.clear()
    world.played.reports.clear()
    await world.played.add({"device": "7"})
    await world.sync()
    assert world.told() == [("A7", NOW - HOUR, {"level": 1}), ("A7", NOW - 5, {"level": 2})]


async def test_a_device_that_is_here_and_added_again_keeps_its_place(world: World):
    """Its history goes on where it was."""
    world.remote.add(7, "A7", (NOW - HOUR, {"level": 1}))
    await world.configure()
    await world.sync()
    await world.played.add({"device": "7"})
    assert (await world.sync())["synced_reports"] == 0


async def test_a_device_that_was_deleted_while_nobody_was_there_stays_away(world: World):
    """It is found gone at its next report, and not brought back."""
    world.remote.add(7, "A7", (NOW - HOUR, {"level": 1}))
    await world.configure()
    await world.sync()
    world.played.devices.clear()
    world.remote.history["7"].append({"ts": NOW - 5, "properties": {"level": 2}})
    await world.sync()
    await world.sync()
    assert world.played.devices == {}


async def test_a_device_can_be_added_by_its_sn(world: World):
    """In any case; what is not there is refused by name."""
    world.remote.add(7, "A7")
    await world.configure()
    assert (await world.played.add({"device": "a7"})).identifier == "A7"
    wanted = AddDevice(tenant="default", user_id=1, name="x", params={"device": "Z9"})
    with pytest.raises(InvalidInput, match=r"^device: the other application .* 'Z9'"):
        await world.played.ask("add_device", wanted, NewDevice)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"base_url": ""}, "base_url"),
        ({"client_id": ""}, "client_id"),
        ({"client_secret": None}, "client_secret"),
    ],
)
async def test_a_missing_setting_is_named(world: World, changes, named):
    """The sync is rejected before it begins."""
    wanted = {"base_url": world.remote.url, "client_id": CLIENT_ID, "client_secret": SECRET}
    given = {key: value for key, value in (wanted | changes).items() if value is not None}
    await world.played.update(given)
    with pytest.raises(InvalidInput, match=named):
        await world.played.call("sync")


async def test_the_secret_is_not_sent_to_another_address(world: World):
    """A user who changes the address has to enter the secret again."""
    await world.configure()
    async with serving(Platform()) as evil:
        await world.played.update({"base_url": evil.url})
        with pytest.raises(InvalidInput, match="client_secret"):
            await world.played.call("sync")
        assert evil.asked == []
    await world.configure()
    assert (await world.sync())["sync_status"] == "done"


async def test_the_secret_may_come_first(world: World):
    """It is kept for the address and the client that are given next."""
    await world.played.update({"client_secret": SECRET})
    await world.played.update({"base_url": world.remote.url})
    await world.played.update({"client_id": CLIENT_ID})
    assert (await world.sync())["sync_status"] == "done"


async def test_the_secret_is_not_shown(world: World, caplog):
    """Neither the integration nor the log shows it, also if the login fails."""
    caplog.set_level(logging.DEBUG)
    world.remote.add(7, "A7")
    await world.configure()
    await world.sync()
    await world.configure(client_secret="wrong-secret-77aa")
    shown = await world.sync()
    assert shown["sync_status"] == "failed"
    assert "authentication_failed" in shown["last_error"]
    known = await world.rpc("get_integrations", {}, KnownIntegrations)
    said = f"{shown} {caplog.text} {known} {world.played.devices}"
    assert SECRET not in said
    assert "wrong-secret-77aa" not in said


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://169.254.169.254", "http://10.0.0.1", "ftp://a.example"]
)
async def test_addresses_that_are_not_public_are_refused(world: World, url):
    """When they are given, naming the property; nothing is called."""
    await world.stop()
    await world.start(allowed="")
    with pytest.raises(InvalidInput, match="base_url"):
        await world.played.update({"base_url": url})


async def test_a_name_that_is_not_public_is_refused_when_it_is_called(world: World):
    """`localhost` resolves to loopback."""
    await world.stop()
    await world.start(allowed="")
    await world.configure(base_url=world.remote.url.replace("127.0.0.1", "localhost"))
    shown = await world.sync()
    assert shown["sync_status"] == "failed"
    assert "not a public address" in shown["last_error"]
    assert world.remote.asked == []


async def test_a_command_goes_there_and_its_end_comes_back(world: World):
    """Sent once, however often it is handed over; the task's end is the reply."""
    world.remote.add(7, "A7")
    await world.configure()
    device = await world.played.add({"device": "A7"})
    command = {"commandId": 5, "kind": "SET_PROPERTIES", "properties": {"mode": "x", "a.b": 1}}
    await world.played.command(device, command)
    await world.played.command(device, command)
    await world.remote.until(lambda: "GET /tasks/1" in world.remote.asked)
    assert world.played.replies == []
    world.remote.tasks["1"] = {"status": "SUCCESS"}
    await world.played.until(lambda: world.played.replies)
    (reply,) = world.played.replies
    assert (reply.identifier, reply.command_id, reply.status) == ("A7", 5, "SUCCESS")
    assert world.remote.set == [("7", {"properties": {"mode": "x", "a.b": 1}})]


async def test_nothing_that_a_command_set_is_kept_after_its_end(world: World):
    """It may be write-only."""
    world.remote.add(7, "A7")
    await world.configure()
    device = await world.played.add({"device": "A7"})
    command = {"commandId": 5, "kind": "SET_PROPERTIES", "properties": {"pin": "s3cret"}}
    await world.played.command(device, command)
    await world.remote.until(lambda: world.remote.tasks)
    world.remote.tasks["1"] = {"status": "SUCCESS"}
    commands = world.mongo.database["openapi_commands"]
    while await commands.find_one({"told": True}) is None:
        await asyncio.sleep(0.02)
    ended = await commands.find_one({"_id": 5})
    assert "s3cret" not in ended["carried"]


async def test_a_copy_after_the_end_is_answered_and_not_sent(world: World):
    """The end is remembered for copies that were on their way."""
    world.remote.add(7, "A7")
    await world.configure()
    device = await world.played.add({"device": "A7"})
    command = {"commandId": 5, "kind": "CALL_SERVICE", "serviceId": "weigh", "inputs": {}}
    await world.played.command(device, command)
    await world.remote.until(lambda: world.remote.tasks)
    world.remote.tasks["1"] = {"status": "SUCCESS", "outputs": {"kilos": 3}}
    await world.played.until(lambda: world.played.replies)
    commands = world.mongo.database["openapi_commands"]
    while await commands.find_one({"told": True}) is None:
        await asyncio.sleep(0.02)
    await world.played.command(device, command)
    await world.played.until(lambda: len(world.played.replies) == 2)
    assert {(reply.status, reply.outputs["kilos"]) for reply in world.played.replies} == {
        ("SUCCESS", 3)
    }
    assert len(world.remote.set) == 1


async def test_a_copy_of_an_expired_command_is_ignored(world: World, caplog):
    """A command that expired before the other platform accepted it is not sent later."""
    world.remote.add(7, "A7")
    await world.configure()
    device = await world.played.add({"device": "A7"})
    command = {"commandId": 5, "kind": "SET_PROPERTIES", "properties": {"mode": "x"}}
    world.remote.failing = lambda method, _: refusal(503, "busy") if method == "PATCH" else None
    await world.played.command(device, command | {"expiresAt": NOW - HOUR // 2})
    commands = world.mongo.database["openapi_commands"]
    async with asyncio.timeout(20):
        while await commands.find_one({"told": True}) is None:
            await asyncio.sleep(0.02)
    world.remote.failing = lambda *_: None
    await world.played.command(device, command)
    await world.played.command(device, command | {"commandId": 6})
    await world.remote.until(lambda: world.remote.tasks)
    world.remote.tasks["1"] = {"status": "SUCCESS"}
    await world.played.until(lambda: world.played.replies)
    assert [reply.command_id for reply in world.played.replies] == [6]
    assert len(world.remote.set) == 1
    assert "failed" not in caplog.text


@pytest.mark.parametrize(
    ("command", "task", "error"),
    [
        ({"kind": "CALL_SERVICE", "serviceId": "fly"}, None, "no service fly"),
        (
            {"kind": "SET_PROPERTIES", "properties": {"mode": "x"}},
            {"status": "FAILED", "errMsg": "jammed"},
            "jammed",
        ),
        (
            {"kind": "SET_PROFILE", "values": [{"key": "a", "value": 1}]},
            {"status": "TIMEOUT"},
            "TIMEOUT",
        ),
    ],
)
async def test_a_failure_comes_back_with_its_reason(world: World, command, task, error):
    """Refused at once, failed at the device, or never answered there."""
    world.remote.add(7, "A7")
    await world.configure()
    device = await world.played.add({"device": "A7"})
    await world.played.command(device, {"commandId": 5, **command})
    if task is not None:
        await world.remote.until(lambda: world.remote.tasks)
        world.remote.tasks["1"] = task
    await world.played.until(lambda: world.played.replies)
    assert world.played.replies[0].status == "FAILED"
    assert error in world.played.replies[0].error


async def test_without_tasks_an_accepted_command_counts_as_done(world: World):
    """The other platform reports no results."""
    async with serving(Platform(tasks=False)) as other:
        other.add(7, "A7")
        await world.configure(base_url=other.url)
        device = await world.played.add({"device": "A7"})
        command = {"commandId": 5, "kind": "SET_PROPERTIES", "properties": {"mode": "x"}}
        await world.played.command(device, command)
        await world.played.until(lambda: world.played.replies)
    assert world.played.replies[0].status == "SUCCESS"


async def test_a_command_survives_its_replica(world: World):
    """The next one waits for the task that the first began."""
    world.remote.add(7, "A7")
    await world.configure()
    device = await world.played.add({"device": "A7"})
    command = {"commandId": 5, "kind": "SET_PROPERTIES", "properties": {"mode": "x"}}
    await world.played.command(device, command)
    await world.remote.until(lambda: "GET /tasks/1" in world.remote.asked)
    await world.stop()
    world.remote.tasks["1"] = {"status": "SUCCESS"}
    await world.start()
    await world.played.until(lambda: world.played.replies)
    assert len(world.remote.set) == 1


async def test_a_command_waits_for_a_platform_that_is_away(world: World):
    """It is tried again until it is taken."""
    world.remote.add(7, "A7")
    await world.configure()
    device = await world.played.add({"device": "A7"})
    refused: list[str] = []

    def away(method: str, path: str):
        if method == "PATCH" and len(refused) < 7:
            refused.append(path)
            return refusal(503, "busy")
        return None

    world.remote.failing = away
    command = {"commandId": 5, "kind": "SET_PROPERTIES", "properties": {"mode": "x"}}
    await world.played.command(device, command)
    await world.remote.until(lambda: world.remote.tasks)
    world.remote.tasks["1"] = {"status": "SUCCESS"}
    await world.played.until(lambda: world.played.replies)
    assert [reply.status for reply in world.played.replies] == ["SUCCESS"]


async def test_an_unknown_device_gets_no_command(world: World):
    """It is refused, which ends it."""
    stranger = DeviceRef(tenant="default", device_id=9, identifier="Z9")
    with pytest.raises(NotFound, match="Z9"):
        await world.played.command(stranger, {"commandId": 5, "kind": "SET_PROPERTIES"})


async def test_a_token_that_ended_is_renewed(world: World):
    """In the middle of what is going on."""
    world.remote.add(7, "A7")
    await world.configure()
    await world.sync()
    world.remote.forget_tokens()
    assert (await world.sync())["sync_status"] == "done"


async def test_it_syncs_by_itself_when_it_is_scheduled(world: World):
    """At once when it never has been, then after the period."""
    world.remote.add(7, "A7", (NOW - HOUR, {"level": 1}))
    await world.configure(scheduled={"enabled": True, "period": 30})
    await world.played.until(world.told)
    assert world.told() == [("A7", NOW - HOUR, {"level": 1})]


async def test_a_tenant_has_its_own_account(world: World):
    """Another tenant has neither the account nor the devices."""
    world.remote.add(7, "A7")
    await world.configure()
    await world.sync()
    with pytest.raises(InvalidInput, match="base_url"):
        await world.played.call("sync", tenant="other")


@pytest.mark.parametrize(
    "answer",
    [
        lambda: refusal(500, "server_error"),
        lambda: refusal(302, "moved"),
        lambda: Response(text="<html>"),
        lambda: Response(body=b'{"status": "\xff"}'),
        lambda: Response(status=204),
    ],
)
async def test_a_platform_out_of_its_mind_is_named(world: World, answer):
    """5xx, redirects and nonsense are its failures, told as such."""
    world.remote.failing = lambda *_: answer()
    await world.configure()
    shown = await world.sync()
    assert shown["sync_status"] == "failed"
    assert "other platform" in shown["last_error"]
    wanted = AddDevice(tenant="default", user_id=1, name="x", params={"device": "Z9"})
    with pytest.raises(ThingwayError, match="other platform"):
        await world.played.ask("add_device", wanted, NewDevice)
