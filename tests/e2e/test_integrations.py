"""Integrations on the whole platform: an external one that is killed, and those built in."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any
from uuid import uuid4

import pytest

from deploy.local.process import PROJECT_ROOT
from tests.e2e.callers import Application, Console
from tests.e2e.platform import MODEL, Platform
from tests.e2e.waiting import until

pytestmark = pytest.mark.xdist_group("platform")

EXAMPLE = PROJECT_ROOT / "examples/integrations/lamps.py"
OWN = "lamps.integration"


@dataclass
class Lamps:
    """The example integration as a process of its own."""

    platform: Platform
    console: Console
    environment: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None

    async def start(self) -> None:
        """Start it, and wait until the console may use it."""
        self.process = subprocess.Popen(
            [sys.executable, EXAMPLE],
            cwd=PROJECT_ROOT,
            env=os.environ | self.environment | {"PYTHONPATH": str(PROJECT_ROOT)},
        )
        await until(self._answers)

    async def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the integration has ended"
        status, _ = await self.console.request("GET", "/integration/lamps")
        return status == 200 and (await self.call(f"{OWN}.count"))[0] == 200

    def freeze(self) -> None:
        """Pause it: it accepts connections and does nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """`kill -9`."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @contextlib.asynccontextmanager
    async def killed_while(self, *operations: str) -> AsyncIterator[None]:
        """Kill it when it has been asked all of these and has answered none."""
        async with self.platform.admin() as admin, asyncio.TaskGroup() as waiting:
            for operation in operations:
                heard = await admin.subscribe(f"rpc.integration.lamps.{operation}", max_msgs=1)
                waiting.create_task(heard.next_msg(timeout=30))
            await admin.flush()
            self.freeze()
            yield
        self.kill()

    async def add(self, serial: str) -> tuple[int, Any]:
        """Add a lamp as the console does."""
        body = {
            "name": f"lamp {serial}",
            "integration": "lamps",
            "param_entities": {f"{OWN}.add_lamp.serial": serial},
        }
        return await self.console.request("POST", "/device", body)

    async def find(self, serial: str) -> dict[str, Any] | None:
        """Return the lamp, as the console lists it."""
        wanted = {"identifier": serial, "page_size": 10, "page_number": 1}
        page = await self.console.data("POST", "/device/search", wanted)
        return page["content"][0] if page["content"] else None

    async def value(self, key: str) -> Any:
        """Return the latest value of an entity."""
        wanted = {"keyword": key, "page_size": 999, "page_number": 1}
        found = await self.console.data("POST", "/entity/search", wanted)
        (entity,) = [entry for entry in found["content"] if entry["entity_key"] == key]
        status = await self.console.data("GET", f"/entity/{entity['entity_id']}/status")
        return (status or {}).get("value")

    async def call(self, key: str, **inputs: Any) -> tuple[int, Any]:
        """Call a service as the console does."""
        exchange = {key: {}} | {f"{key}.{name}": value for name, value in inputs.items()}
        return await self.console.request("POST", "/entity/service/call", {"exchange": exchange})


@pytest.fixture(scope="module")
async def lamps(platform: Platform, console: Console) -> AsyncIterator[Lamps]:
    """Start the example with a login that the operator made."""
    made = platform.command("integration", "create", "lamps")
    assert "lamps" in [one["integration"] for one in platform.command("integration", "list")]
    environment = {
        "NATS_URL": f"nats://127.0.0.1:{platform.nats_port}",
        "NATS_USER": made["user"],
        "NATS_SECRET": made["secret"],
    }
    await console.sign_in()
    found = Lamps(platform, console, environment)
    try:
        await found.start()
        yield found
    finally:
        found.kill()
        platform.command("integration", "delete", "lamps")


def serial() -> str:
    return f"L{uuid4().hex[:12]}".upper()


async def test_the_operator_has_the_logins(platform: Platform):
    """Made, listed, given another secret and ended by command."""
    made = platform.command("integration", "create", "doors")
    assert made["user"] == "integration.doors"
    rotated = platform.command("integration", "rotate-secret", "doors")
    assert rotated["secret"] != made["secret"]
    listed = platform.command("integration", "list")
    assert "doors" in [entry["integration"] for entry in listed]
    assert platform.command("integration", "delete", "doors")["deleted"] is True
    assert "doors" not in [one["integration"] for one in platform.command("integration", "list")]


async def test_the_example_is_an_integration_like_any_other(lamps: Lamps):
    """Listed, with devices that are added, switched, called and deleted."""
    found = await lamps.console.data("POST", "/integration/search", {"device_addable": True})
    assert "lamps" in [entry["id"] for entry in found]

    name = serial()
    status, answer = await lamps.add("?!?")
    assert (status, answer["detail_message"]) == (400, f"param_entities.{OWN}.add_lamp.serial")
    status, answer = await lamps.add(name)
    assert status == 200, answer
    device = await lamps.find(name)
    assert device is not None
    status, answer = await lamps.call(f"{OWN}.count")
    assert status == 200, answer
    assert answer["data"]["lamps"] >= 1
    key = f"lamps.device.{name}"
    exchange = {f"{key}.level": 80, f"{key}.on": True}
    await lamps.console.data("POST", "/entity/property/update", {"exchange": exchange})

    async def bright() -> bool:
        return (await lamps.value(f"{key}.level"), await lamps.value(f"{key}.on")) == (80, True)

    await until(bright)
    status, answer = await lamps.call(f"{key}.toggle")
    assert status == 200, answer

    async def dark() -> bool:
        return await lamps.value(f"{key}.on") is False

    await until(dark)
    gone = {"device_id_list": [device["id"]]}
    await lamps.console.data("POST", "/device/batch-delete", gone)
    assert await lamps.find(name) is None


async def test_killed_during_an_add_it_leaves_nothing_behind(lamps: Lamps):
    """The user gets an error; the device is absent until it is added again."""
    name = serial()
    async with lamps.killed_while("add_device"):
        adding = asyncio.ensure_future(lamps.add(name))
    status, answer = await adding
    assert status == 504, answer
    assert "lamps did not answer" in answer["error_message"]
    assert await lamps.find(name) is None

    status, answer = await lamps.add(name)
    assert status in {503, 504}, answer
    assert "lamps" in answer["error_message"]
    assert await lamps.find(name) is None

    await lamps.start()
    status, answer = await lamps.add(name)
    assert status == 200, answer
    assert (await lamps.find(name) or {})["name"] == f"lamp {name}"


async def test_killed_during_a_call_it_does_it_when_it_is_back(lamps: Lamps):
    """Both callers get an error; the command runs once, and calls work again."""
    name = serial()
    assert (await lamps.add(name))[0] == 200
    key = f"lamps.device.{name}"
    async with lamps.killed_while("call", "command"):
        calling = asyncio.gather(lamps.call(f"{OWN}.count"), lamps.call(f"{key}.toggle"))
    for status, answer in await calling:
        assert status == 504, answer
        assert "error_message" in answer

    await lamps.start()

    async def on() -> bool:
        return await lamps.value(f"{key}.on") is True

    await until(on)
    status, answer = await lamps.call(f"{OWN}.count")
    assert answer["data"]["lamps"] >= 1
    assert await on()  # toggled once: a second time it would be off


async def test_a_simulated_device_reports_by_itself(
    platform: Platform, console: Console, application: Application
):
    """Added at the console, it has values a moment later, and again after `kill -9`."""
    own = "simulator.integration.add_device"
    name = f"simulated {uuid4().hex}"
    body = {
        "name": name,
        "integration": "simulator",
        "param_entities": {f"{own}.model": MODEL, f"{own}.interval": 1},
    }
    await console.data("POST", "/device", body)
    wanted = {"name": name, "page_size": 1, "page_number": 1}
    (device,) = (await console.data("POST", "/device/search", wanted))["content"]
    entities = (await console.data("GET", f"/device/{device['id']}"))["entities"]
    measured = next(entity for entity in entities if entity["key"].endswith(".temperature"))

    async def has_value() -> Any:
        return await console.data("GET", f"/entity/{measured['id']}/status")

    assert isinstance((await until(has_value))["value"], float)

    old = await platform.kill("management")
    await platform.restarted("management", old)
    seen = (await has_value())["updated_at"]

    async def goes_on() -> bool:
        return (await has_value())["updated_at"] > seen

    await until(goes_on)
    await console.data("POST", "/device/batch-delete", {"device_id_list": [device["id"]]})


@pytest.fixture
async def other() -> AsyncIterator[Platform]:
    """Start a second Thingway."""
    root = Path(tempfile.mkdtemp(prefix="thingway-e2e-other-"))
    platform = Platform(root / "data")
    try:
        platform.start()
        yield platform
    finally:
        platform.stop()
        rmtree(root, ignore_errors=True)


@pytest.mark.slow
async def test_devices_of_another_thingway(platform: Platform, console: Console, other: Platform):
    """A sync copies device, product and history once; a command works both ways."""
    remote = other.application()
    product = {
        "name": "Far tank",
        "tsl": {
            "version": "v1.0",
            "properties": [
                {"id": "level", "accessMode": "R", "dataSpec": {"dataType": "INT"}},
                {"id": "valve", "accessMode": "RW", "dataSpec": {"dataType": "BOOL"}},
            ],
            "events": [],
            "services": [],
        },
    }
    model = f"FAR-{uuid4().hex[:8]}"
    await remote.data("PUT", f"/products/{model}", product)
    device = await remote.add_device(model=model)
    times = [int(time.time() * 1000) - 60_000 + n for n in range(5)]
    async with device.mqtt() as mqtt:
        for n, ts in enumerate(times):
            await mqtt.report({"level": n}, ts=ts)
        await device.stored({"level": 4})

        own = "openapi-client.integration"
        await console.data("GET", "/integration/openapi-client")
        exchange = {
            f"{own}.base_url": other.base_url,
            f"{own}.client_id": remote.client_id,
            f"{own}.client_secret": remote.client_secret,
        }
        await console.data("POST", "/entity/property/update", {"exchange": exchange})

        async def shown() -> dict[str, Any]:
            detail = await console.data("GET", "/integration/openapi-client")
            entities = detail["integration_entities"]
            return {
                entity["key"].removeprefix(f"{own}."): entity.get("value") for entity in entities
            }

        async def sync() -> dict[str, Any]:
            before = (await shown()).get("last_sync")
            await asyncio.sleep(1.1)  # `last_sync` counts seconds
            await console.data("POST", "/entity/service/call", {"exchange": {f"{own}.sync": {}}})

            async def ended() -> dict[str, Any] | None:
                now = await shown()
                return now if now.get("last_sync") != before else None

            return await until(ended)

        first = await sync()
        assert first["sync_status"] == "done", first
        assert first["synced_reports"] == 5
        assert "client_secret" not in first or first["client_secret"] is None
        assert (await sync())["synced_reports"] == 0

        wanted = {"identifier": device.sn, "page_size": 1, "page_number": 1}
        (here,) = (await console.data("POST", "/device/search", wanted))["content"]
        assert here["integration"] == "openapi-client"
        entities = (await console.data("GET", f"/device/{here['id']}"))["entities"]
        level = next(one for one in entities if one["key"].endswith(".level"))
        asked = {"entity_id": level["id"], "page_size": 100, "page_number": 1}

        async def history() -> bool:
            page = await console.data("POST", "/entity/history/search", asked)
            rows = [(int(row["timestamp"]), row["value"]) for row in page["content"]]
            return sorted(rows) == list(zip(times, range(5), strict=True))

        await until(history)

        valve = f"openapi-client.device.{device.sn}.valve"
        setting = {"exchange": {valve: True}}
        await console.data("POST", "/entity/property/update", setting)
        command = await mqtt.command()
        assert command["properties"] == {"valve": True}
        await mqtt.answer(command)
        entity = next(one for one in entities if one["key"] == valve)

        async def open_here() -> bool:
            status = await console.data("GET", f"/entity/{entity['id']}/status")
            return (status or {}).get("value") is True

        await until(open_here)
    await remote.close()
