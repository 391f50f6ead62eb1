"""Backups that are taken under load hold what was promised, once."""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from moto.server import ThreadedMotoServer

from deploy.backup.s3 import S3Storage
from deploy.checkup.processes import parse_metrics_and_version
from deploy.local import programs
from deploy.local.process import PROJECT_ROOT
from deploy.platform import ports
from tests.e2e.callers import Application
from tests.e2e.devices import Device
from tests.e2e.journey import PASSWORD, Browser, browsing
from tests.e2e.platform import MODEL, PRODUCT, THINGWAY, Platform
from tests.faults.load import Attempt, Load, refused, settled, stored
from tests.integration.workflow.designs import design, edge, node

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("backups")]

Start = Callable[[str], Platform]
SECRET = "hunter2"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a platform; all stop after the test."""
    running: list[Platform] = []

    def begin(name: str) -> Platform:
        running.append(Platform(tmp_path / name))
        running[-1].start()
        return running[-1]

    yield begin
    for platform in running:
        platform.stop()


async def thingway(*words: object) -> str:
    """Run a command during the load and return its output."""
    done = await _run(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def refusal(*words: object) -> str:
    """Run a command that is refused; why."""
    done = await _run(*words)
    assert done.returncode == 1
    return done.stderr


async def _run(*words: object) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [THINGWAY, *map(str, words)],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


class Stored:
    """A device that reports with `wait=stored`, and the answers."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.told: set[Attempt] = set()

    async def run(self) -> None:
        """Report until cancelled."""
        for one in map(Attempt, itertools.count()):
            status, answer = await self.device.http("POST", "report", one.good(), wait="stored")
            assert status < 300, answer
            self.told.add(one)


async def test_a_backup_taken_under_load_is_an_installation_again(
    start: Start, tmp_path: Path
) -> None:
    """Each report acknowledged earlier is there once; logins, keys and streams work."""
    source = start("source")
    application = source.application()
    await application.data("PUT", f"/products/{MODEL}", PRODUCT)
    load = Load(source, application)
    waiting = Stored(await application.add_device())
    job = asyncio.create_task(waiting.run())
    async with load.running(3):
        await asyncio.sleep(2)  # some of everything
        promised = {key: set(attempts) for key, attempts in load.promised.items()}
        promised[waiting.device.id] = set(waiting.told)
        dead = {key: set(attempts) for key, attempts in load.promised_dead.items()}
        file = await thingway("backup", tmp_path / "out", "--data", source.directory, "--verify")
        await load.goes_on()
    job.cancel()
    await application.close()
    source.stop()
    await thingway("restore", file, "--data", tmp_path / "copy", "--verify")

    copy = start("copy")
    application = copy.application()
    before = await settled(copy)
    async with copy.admin() as client:
        for old in (*load.devices, waiting.device):
            device = replace(old, application=application)
            found, ended = await stored(device), await refused(client, device)
            assert promised[old.id] - found.keys() == set()
            assert dead.get(old.id, set()) - ended.keys() == set()
            assert {*found.values(), *ended.values()} == {1}

    console = copy.console()
    await console.sign_in()
    await console.close()
    after = Load(copy, application)
    async with after.running(1), device.mqtt() as connection:
        await connection.report({"counter": 10**6})
    await device.stored({"counter": 10**6})
    await device.http("POST", "report", {"properties": {"counter": 10**6 + 1}}, wait="stored")
    now = await settled(copy)
    fresh = sum(map(len, after.promised.values())) + 2
    assert now["stored"] - before["stored"] >= fresh
    assert now["accepted"] == now["stored"] + now["rejected"]
    await application.close()


def names(directory: Path) -> list[str]:
    """Return the names in a directory."""
    return [path.name for path in directory.iterdir()]


@contextlib.contextmanager
def scratch_servers(directory: Path) -> Iterator[tuple[str, str]]:
    """Run a MongoDB and a NATS without logins, as the pod of a verification; their URLs."""
    mongo, nats = ports.claim_random(), ports.claim_random()
    (directory / "mongo").mkdir(parents=True)
    words = f"--dbpath={directory}/mongo --port={mongo} --bind_ip=127.0.0.1 --logpath={directory}/l"
    mongod = (programs.find_program(programs.MONGOD).path, *words.split(), "--nounixsocket")
    words = f"--addr=127.0.0.1 --port={nats} --jetstream --store_dir={directory}/nats"
    server = (programs.find_program(programs.NATS).path, *words.split(), f"--log={directory}/n")
    running = [subprocess.Popen(command) for command in (mongod, server)]
    try:
        yield f"mongodb://127.0.0.1:{mongo}/?directConnection=true", f"nats://127.0.0.1:{nats}"
    finally:
        for process in running:
            process.terminate()
            process.wait(60)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of a bucket in S3-compatible storage."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    S3Storage("s3://store")._client.create_bucket(Bucket="store")
    yield "s3://store/thingway"
    server.stop()


async def test_a_backup_in_s3_is_verified_and_restored(
    start: Start, tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Own and given servers verify it, a metric shows this, and one backup is kept.

    A report that waits in a partition of `UPLINK` is stored after the restore.
    """
    monkeypatch.setenv("THINGWAY_UPLINK_PARTITIONS", "2")
    source = start("source")
    application = source.application()
    await application.data("PUT", f"/products/{MODEL}", PRODUCT)
    device = await application.add_device()
    await device.http("POST", "report", {"properties": {"counter": 1}}, wait="stored")
    data = ("--data", source.directory)
    first = await thingway("backup", bucket, *data)
    ingest = source.ready.pids["device-ingest"]
    os.kill(ingest, signal.SIGSTOP)
    async with device.mqtt() as connection:
        await connection.report({"counter": 2})
    last = await thingway("backup", bucket, *data, "--keep", "1")
    os.kill(ingest, signal.SIGCONT)
    assert first != last
    assert (await thingway("backup", "list", bucket)).split()[0] == last.rpartition("/")[2]

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    await thingway("backup", "verify", bucket, *data, "--scratch", scratch)
    assert names(scratch) == []
    url = f"http://127.0.0.1:{source.state.ports['device']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        shown, _ = parse_metrics_and_version(await answer.text())
    assert shown["thingway_backup_restore_seconds"] > 0
    restored = shown["thingway_backup_restored_timestamp_seconds"]
    assert restored == shown["thingway_backup_finished_timestamp_seconds"]
    with scratch_servers(scratch) as (mongo, nats):
        given = ("--scratch-mongo-url", mongo, "--scratch-nats-url", nats)
        await thingway(
            "backup", "verify", last, "--nats-url", source.addresses.nats_url, *data, *given
        )
        assert "is not empty" in await refusal("backup", "verify", last, *data, *given)

    await application.close()
    source.stop()
    await thingway("restore", bucket, "--data", tmp_path / "copy", "--verify")
    copy = start("copy")
    application = copy.application()
    device = replace(device, application=application)
    await device.stored({"counter": 2})
    await device.http("POST", "report", {"properties": {"counter": 3}}, wait="stored")
    async with device.mqtt() as connection:
        await connection.report({"counter": 4})
    await device.stored({"counter": 4})
    history = await device.history()
    assert [one["properties"]["counter"] for one in history] == [1, 2, 3, 4]
    await application.close()


class Town(NamedTuple):
    """The contents of a tenant."""

    device: Device
    application: Application
    dashboard: str
    flow: str


async def _create_town(browser: Browser, hook: str) -> Town:
    """Create a user, an application, a device with history, a dashboard and a flow.

    The flow has a secret.
    """
    person = {"email": browser.email, "nickname": "Ada", "password": PASSWORD}
    await browser.ask("POST", "/user/register", person)
    await browser.log_in()
    application = await browser.application()
    await application.data("PUT", f"/products/{MODEL}", PRODUCT)
    device = await application.add_device()
    for value in range(3):
        await device.http("POST", "report", {"properties": {"counter": value}}, wait="stored")
    key = f"direct.device.{device.sn}.temperature"
    dashboard = await browser.ask("POST", "/dashboard", {"name": "Hall"})
    entity = await _entity(browser, key)
    card = {"config": {"entity": {"value": entity["entity_id"]}, "most": 1_000_000}}
    body = {"name": "Hall", "widgets": [{"tempId": 1, "data": card}]}
    await browser.ask("PUT", f"/dashboard/{dashboard['dashboard_id']}", body)
    text = design(
        [
            node("listen", "eventListener", entities=[key]),
            node("ask", "httpRequest", url=hook, method="POST", header={"X-Key": SECRET}),
        ],
        edge("listen", "ask"),
    )
    flow = {"name": "tell", "enabled": True, "design_data": text}
    made = await browser.ask("POST", "/workflow/flows/design", flow)
    return Town(device, application, dashboard["dashboard_id"], made["id"])


async def _inhabit(platform: Platform) -> None:
    """Let somebody have the first ids of everything."""
    application, console = platform.application(), platform.console()
    await application.data("PUT", f"/products/{MODEL}", PRODUCT)
    device = await application.add_device()
    await device.http("POST", "report", {"properties": {"counter": 7}}, wait="stored")
    await console.data("POST", "/dashboard", {"name": "Theirs"})
    text = design([node("listen", "eventListener", entities=[f"direct.device.{device.sn}.led"])])
    flow = {"name": "theirs", "enabled": True, "design_data": text}
    await console.data("POST", "/workflow/flows/design", flow)
    await application.close()
    await console.close()


async def _entity(browser: Browser, key: str) -> Any:
    body = {"keyword": key, "page_number": 1, "page_size": 100}
    found = await browser.ask("POST", "/entity/search", body)
    return next(entry for entry in found["content"] if entry["entity_key"] == key)


async def _check_town(town: Town, browser: Browser, received: asyncio.Queue[str]) -> Town:
    """Check that the contents of a tenant are there under other ids, and work."""
    await browser.log_in()
    old = town.application
    application = Application(browser.platform, old.client_id, old.client_secret)
    query = {"pageSize": 5, "pageNumber": 1, "sn": town.device.sn}
    (found,) = (await application.data("POST", "/devices/search", query))["content"]
    device = Device(application, found["deviceId"], town.device.sn, town.device.key)
    counters = [one["properties"]["counter"] for one in await device.history()]
    (dashboard,) = await browser.ask("GET", "/dashboard/dashboards")
    entity = await _entity(browser, f"direct.device.{device.sn}.temperature")
    shown = dashboard["widgets"][0]["data"]["config"]
    flows = await browser.ask("POST", "/workflow/flows/search", {"page_size": 5, "page_number": 1})

    assert counters == [0, 1, 2]
    assert shown == {"entity": {"value": entity["entity_id"]}, "most": 1_000_000}
    report = {"properties": {"temperature": 21.5}}
    status, answer = await device.http("POST", "report", report, wait="stored")
    assert status < 300, answer
    assert await asyncio.wait_for(received.get(), 30) == SECRET
    async with device.mqtt() as connection:
        await connection.report({"counter": 3})
    await device.stored({"counter": 3})
    await application.close()
    return Town(device, application, dashboard["dashboard_id"], flows["content"][0]["id"])


@pytest.fixture
async def received() -> AsyncIterator[tuple[str, asyncio.Queue[str]]]:
    """Return an address, and the keys that are sent to it."""
    keys: asyncio.Queue[str] = asyncio.Queue()

    async def record(request: web.Request) -> web.Response:
        keys.put_nowait(request.headers["X-Key"])
        return web.Response()

    app = web.Application()
    app.router.add_post("/", record)
    async with TestServer(app) as server:
        yield str(server.make_url("/")), keys


async def test_a_tenant_moves_into_an_installation_that_has_others(
    start: Start, tmp_path: Path, received: tuple[str, asyncio.Queue[str]]
) -> None:
    """Ids are other ones, everywhere; history, log-ins, keys, flows and their secrets go on."""
    source, target = start("source"), start("target")
    await _inhabit(target)
    other = target.application()
    async with browsing(source) as browser:
        hook, sent = received
        town = await _create_town(browser, hook)
        name = browser.session.headers["TENANT_ID"]
        file = await thingway(
            "backup", tmp_path / "out", "--data", source.directory, "--tenant", name, "--verify"
        )
        words = ("restore", file, "--data", target.directory, "--verify")
        taken = await other.add_device(snDevEUI=town.device.sn)
        assert f"these SNs are already in use here: {taken.sn}" in await refusal(*words)
        await other.data("DELETE", f"/devices/{taken.id}")
        await other.close()
        assert await thingway(*words) == ""
        async with aiohttp.ClientSession(target.base_url) as session:
            there = replace(browser, platform=target, session=session, token="")
            moved = await _check_town(town, there, sent)
        ids = zip(
            (town.device.id, town.dashboard, town.flow),
            (moved.device.id, moved.dashboard, moved.flow),
            strict=True,
        )
        assert [one for one, other in ids if one == other] == []
        assert f"tenant {name} already" in await refusal(*words)
        await town.application.close()
