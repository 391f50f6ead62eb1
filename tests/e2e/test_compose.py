"""`docker-compose up --build --scale …` on a machine with nothing but a Docker engine.

The images of the servers are `MONGO_IMAGE`, `NATS_IMAGE` and `REDIS_IMAGE` as for compose itself.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.local.process import PROJECT_ROOT
from deploy.platform.ready import ReadyFile
from deploy.platform.state import Addresses
from tests.e2e.callers import Application
from tests.e2e.journey import browsing, travel
from tests.e2e.listening import listening
from tests.e2e.platform import MODEL, PRODUCT, Platform

pytestmark = [
    pytest.mark.docker,
    pytest.mark.xdist_group("compose"),
    pytest.mark.skipif(
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0,
        reason="no Docker engine answers",
    ),
]

REPLICAS = {
    "auth": 1,
    "device": 3,
    "device-ingest": 1,
    "gateway": 1,
    "management": 2,
    "workflow": 2,
}
OURS = tuple(REPLICAS)
SCALED = [f"--scale={service}={count}" for service, count in REPLICAS.items() if count > 1]
UP = ("up", "--build", "-d", *SCALED)
START_SECONDS = 420.0
PROJECT = "thingway-e2e"


def _compose() -> list[str]:
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return ["docker", "compose"] if plugin.returncode == 0 else ["docker-compose"]


class Composed(Platform):
    """The platform in containers, on ports of its own."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._compose = [*_compose(), "-p", PROJECT]
        self._ready: ReadyFile | None = None
        self._environment = os.environ | {
            "THINGWAY_PORT": str(self.port),
            "THINGWAY_MQTT_PORT": str(self.mqtt_port),
            "THINGWAY_NATS_PORT": str(self.nats_port),
            "THINGWAY_WEBSOCKET_PORT": str(self.websocket_port),
            "THINGWAY_IMAGE": "thingway:e2e",
            "THINGWAY_BACKUP_PASSPHRASE": "a passphrase of the tests",
        }

    @property
    def addresses(self) -> Addresses:
        host = "127.0.0.1"
        return Addresses(
            self.base_url, f"mqtt://{host}:{self.mqtt_port}", f"nats://{host}:{self.nats_port}"
        )

    @property
    def ready(self) -> ReadyFile:
        assert self._ready is not None
        return self._ready

    def run(self, *words: str, check: bool = True) -> str:
        """Run docker-compose and return its output."""
        done = subprocess.run(
            [*self._compose, *words],
            cwd=PROJECT_ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=START_SECONDS,
        )
        if check and done.returncode:
            pytest.fail(
                f"docker-compose {' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
            )
        return done.stdout

    def start(self) -> None:
        self.run(*UP)
        deadline = time.monotonic() + START_SECONDS
        while True:
            [job] = self.containers("bootstrap")
            if not job["State"]["Running"]:
                assert job["State"]["ExitCode"] == 0, self.run("logs", "--tail", "20")
                break
            if time.monotonic() > deadline:
                pytest.fail(self.run("logs", "--tail", "20"))
            time.sleep(0.5)
        self._ready = self.credentials()

    def command(self, *words: str) -> Any:
        """Run a `thingway` command as documented; return the JSON that it prints."""
        run = ("run", "--rm", "--no-deps", "-T", "thingway")
        return json.loads(self.run(*run, *words, "--json"))

    def credentials(self) -> ReadyFile:
        """Return the output of the documented command."""
        text = self.run("run", "--rm", "--no-deps", "-T", "credentials")
        return msgspec.json.decode(text, type=ReadyFile)

    def containers(self, service: str) -> list[dict[str, Any]]:
        """Return a service's containers as in `docker inspect`, also ended ones."""
        name = "label=com.docker.compose.service=" + service
        project = "label=com.docker.compose.project=" + PROJECT
        listed = ["docker", "ps", "-aq", "--filter", name, "--filter", project]
        ids = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
        shown = subprocess.run(["docker", "inspect", *ids], capture_output=True, check=True)
        found: list[dict[str, Any]] = json.loads(shown.stdout)
        return found

    def inside(self, service: str, *words: str) -> str:
        """Run a command in a container."""
        return self.run("exec", "-T", service, *words)


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """Start the platform from nothing; remove containers and volumes afterwards."""
    made = Composed(tmp_path_factory.mktemp("compose"))
    made.run("down", "-v", "-t", "1", check=False)
    try:
        made.start()
        yield made
    finally:
        made.run("down", "-v", "-t", "5", check=False)


@pytest.fixture
async def app(composed: Composed) -> AsyncIterator[Application]:
    """Return the first application, with the tests' product imported."""
    client = composed.application()
    await client.data("PUT", f"/products/{MODEL}", PRODUCT)
    yield client
    await client.close()


async def test_reports_and_commands_go_round(composed: Composed, app: Application):
    """MQTT report to history and event; property update to the device and back to the task."""
    device = await app.add_device()
    async with listening(composed, app) as events, device.mqtt() as mqtt:
        await device.becomes("ONLINE")
        await mqtt.report({"temperature": 21.5, "interval": 7})
        await device.stored({"temperature": 21.5, "interval": 7})
        await events.wait(f"event.default.device.{device.id}.reported")
        task = await app.started(
            "PATCH", f"/devices/{device.id}/properties", {"properties": {"interval": 9}}
        )
        command = await mqtt.command()
        assert command["properties"] == {"interval": 9}
        await mqtt.answer(command)
        assert (await device.ended(task))["status"] == "SUCCESS"
        assert (await device.settings())["interval"] == 9
    await device.becomes("OFFLINE")


async def test_http_and_nats_devices_are_served(app: Application):
    """Reports over the other two protocols, also with `?wait=stored`."""
    device = await app.add_device()
    status, body = await device.http(
        "POST", "report", {"properties": {"counter": 1}}, wait="stored"
    )
    assert (status, body["data"]["accepted"]) == (202, 1)
    async with device.nats() as client:
        await client.jetstream().publish(
            f"thing.{device.sn}.up.report", b'{"properties":{"counter":2}}'
        )
    await device.stored({"counter": 2})
    assert len(await device.history()) == 2


async def test_the_first_user_signs_in(composed: Composed):
    """With the user and the console client that the documented command prints."""
    console = composed.console()
    try:
        assert (await console.data("GET", "/user"))["is_super_admin"]
    finally:
        await console.close()


async def test_the_whole_journey(composed: Composed):
    """An existing console makes its calls, from registration to deletion."""
    async with browsing(composed) as browser:
        await travel(browser)


def test_every_replica_is_ready(composed: Composed):
    """Each of our containers is healthy, also those of scaled services."""
    for service, count in REPLICAS.items():
        found = composed.containers(service)
        assert len(found) == count
        for container in found:
            _until_healthy(composed, container["Id"])


@pytest.mark.parametrize("service", ["gateway", "device"])
def test_doctor_finds_all_well_from_a_container(composed: Composed, service: str):
    """It checks each replica behind the gateway and the stores of a service."""
    found = json.loads(composed.inside(service, "thingway", "doctor", "--json"))
    assert [entry for entry in found if not (entry["good"] or entry["minor"])] == []
    names = [entry["subject"].partition(" at ")[0] for entry in found]
    if service == "gateway":
        assert {name: names.count(f"service {name}") for name in REPLICAS} == REPLICAS
    else:
        assert {"mongo thingway_device", "nats-server thingway"} <= set(names)


def _until_healthy(composed: Composed, container: str) -> None:
    deadline = time.monotonic() + 60
    query = ["docker", "inspect", "-f", "{{.State.Health.Status}}", container]
    while True:
        done = subprocess.run(query, capture_output=True, text=True, check=True)
        if done.stdout.strip() == "healthy":
            return
        assert time.monotonic() < deadline, composed.run("logs", "--tail", "20")
        time.sleep(0.5)


def test_only_three_ports_are_published_and_on_loopback(composed: Composed):
    """HTTP, NATS and MQTT; the stores have no way in."""
    published = {}
    for service in (*OURS, "mongo", "redis", "nats"):
        for container in composed.containers(service):
            for bindings in (container["NetworkSettings"]["Ports"] or {}).values():
                for binding in bindings or []:
                    published[int(binding["HostPort"])] = binding["HostIp"]
    assert published == dict.fromkeys(
        (composed.port, composed.mqtt_port, composed.nats_port, composed.websocket_port),
        "127.0.0.1",
    )


@pytest.mark.parametrize("service", OURS)
def test_a_service_runs_unprivileged_with_its_own_secrets(composed: Composed, service: str):
    """Not root, a read-only file system, and no other service's secrets."""
    assert composed.inside(service, "id", "-u").strip() == "10001"
    listed = composed.inside(service, "ls", "/secrets").split()
    assert listed == (["device-ca.pem", "env"] if service == "gateway" else ["env"])
    text = composed.inside(service, "cat", "/secrets/env")
    held = {line.partition("=")[0] for line in text.splitlines()}
    assert ("THINGWAY_CALLOUT_SEED" in held) == (service == "auth")
    assert ("THINGWAY_CONSOLE_CLIENT_SECRET" in held) == (service == "auth")
    assert ("THINGWAY_INTERNAL_PRIVATE_KEY" in held) == (service == "gateway")
    assert ("THINGWAY_SYS_NATS_PASSWORD" in held) == (service == "device")
    assert ("THINGWAY_MONGO_URL" in held) == (service != "gateway")


LOG_INS = {
    "mongo": "import pymongo; pymongo.MongoClient('mongo', directConnection=True).x.y.find_one()",
    "redis": "import redis; redis.Redis('redis').get('x')",
    "nats": "import asyncio, nats; asyncio.run(nats.connect('nats://nats', allow_reconnect=False))",
}


@pytest.mark.parametrize("server", LOG_INS)
def test_no_server_answers_without_a_login(composed: Composed, server: str):
    """Being on the network is not enough."""
    guarded = f"try:\n {LOG_INS[server]}\nexcept Exception as error:\n print('refused', error)"
    assert composed.inside("device", "python", "-c", guarded).startswith("refused")


def test_the_thingway_command_works_on_it(composed: Composed):
    """Applications are made by the documented command."""
    made = composed.command("app", "create", "second")
    listed = composed.command("app", "list")
    assert made["clientId"] in [entry["clientId"] for entry in listed]


def test_a_backup_is_restored_into_temporary_stores(composed: Composed):
    """By the documented commands; the temporary stores leave nothing behind."""
    stores = ("scratch-mongo", "scratch-nats")
    composed.run("run", "--rm", "--no-deps", "-T", "backup", "/backups", "--keep", "1")
    composed.run("run", "--rm", "-T", "verify")
    volumes = [
        mount["Name"]
        for store in stores
        for container in composed.containers(store)
        for mount in container["Mounts"]
    ]
    composed.run("rm", "-fsv", *stores)
    listed = subprocess.run(["docker", "volume", "ls", "-q"], capture_output=True, check=True)
    assert volumes
    assert not set(volumes) & set(listed.stdout.decode().split())


async def test_a_second_start_keeps_data_and_credentials(composed: Composed, app: Application):
    """`down` and `up` again: the same secrets, the same history."""
    device = await app.add_device()
    await device.http("POST", "report", {"properties": {"counter": 5}}, wait="stored")
    before = composed.ready
    composed.run("down", "-t", "20")
    composed.start()
    assert composed.ready == before
    await device.stored({"counter": 5})
    async with device.mqtt() as mqtt:
        await mqtt.report({"counter": 6})
        await device.stored({"counter": 6})
