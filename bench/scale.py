"""Benchmark of 1,000,000 registered devices, including 10,000 connected ones.

Devices are written to the database, with credentials for those that connect. Then each process is
killed while `SWAPPED` devices disconnect and as many others connect, and the time until all device
states are correct again is measured. Keys are rotated until their connections close; devices are
listed and searched; ten devices report as before.
"""

import asyncio
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

import aiohttp
import msgspec

from bench.crowd import Device, device_key, device_sn
from bench.ingest import MODEL, TSL, VERSION, drained, properties
from bench.platform import Platform
from bench.stack import ROOT
from bench.table import Row, median_value
from libs.common.bus import Bus, OutgoingMessage, RpcClient
from libs.common.clock import now_ms
from libs.common.contracts.auth import DeviceCredentials, DeviceRef
from libs.common.identity.device_keys import device_key_hash
from libs.common.tsl import parse_document, to_wire
from services.device.things.device_search import extract_ngrams

REGISTERED, CONNECTED, SWAPPED, ROTATED = 1_000_000, 10_000, 500, 100
REPORTING, REPORTS, ROUNDS = 10, 30_000, 3
FIRST_ID = 5_000_000
SEARCHES = 40
GATEWAY_TIMEOUT = 504
KILLED = ("nats", "device", "device-ingest", "mongod", "auth", "gateway")
PATIENCE = 120.0
"""Timeout of each measurement in seconds."""
TENANT = "default"

Json = dict[str, Any]


class Scale:
    """The running platform and its measurements."""

    def __init__(self, platform: Platform, bus: Bus) -> None:
        self._platform = platform
        self._bus = bus
        self._device = platform.database()
        self._auth = self._device.client["thingway_auth"]
        client_id = platform.ready["application"]["client_id"]
        application = self._auth.applications.find_one({"clientId": client_id})
        self._application = {
            "applicationId": application["_id"],
            "applicationName": application["name"],
        }

    def prepare(self) -> None:
        """Write a product and the reporting devices."""
        document = msgspec.json.encode(to_wire(parse_document(TSL)))
        identity = {"tenant": TENANT, "model": MODEL, "version": VERSION}
        self._device.tsls.insert_one({"_id": identity, "document": document, "hash": "bench"})
        self._register(range(REPORTING))

    def fill(self) -> None:
        """Write all other devices, and the credentials of the connecting devices."""
        number = CONNECTED + SWAPPED + ROTATED
        self._register(range(REPORTING, REGISTERED))
        self._auth.device_credentials.insert_many(
            {
                "_id": device_sn(index),
                "tenant": TENANT,
                "sn": device_sn(index),
                "deviceId": FIRST_ID + index,
                "keyHash": device_key_hash(device_key(index)),
            }
            for index in range(number)
        )

    def _register(self, numbers: range) -> None:
        for first in range(numbers.start, numbers.stop, 10_000):
            some = range(first, min(first + 10_000, numbers.stop))
            self._device.serials.insert_many(
                ({"_id": device_sn(index), "holder": "device"} for index in some), ordered=False
            )
            self._device.devices.insert_many(self._documents(some), ordered=False)

    def _documents(self, numbers: range) -> Iterator[Json]:
        for number in numbers:
            now = datetime.now(UTC)
            name = f"Meter {number} in hall {number % 997}"
            yield {
                "_id": FIRST_ID + number,
                "tenant": TENANT,
                "sn": device_sn(number),
                "snKey": device_sn(number),
                "integration": "direct",
                "identifier": device_sn(number),
                "model": MODEL,
                "tslVersion": VERSION,
                "deviceType": "COMMON",
                "connectStatus": "DISCONNECT",
                "licenseStatus": "VALID",
                "dataStorage": True,
                "createdAt": now,
                "updatedAt": now,
                "name": name,
                "grams": extract_ngrams(name, device_sn(number)),
                "description": "",
                "project": f"project {number % 20}",
                "tag": ["bench"],
                "rpsStatus": "DISABLE",
                "application": self._application,
            }

    async def ingest(self, devices: int) -> float:
        """Return the median reports per second from `UPLINK` to storage."""
        encoder, rates = msgspec.json.Encoder(), []
        for _ in range(ROUNDS):
            ts = now_ms()
            started = time.perf_counter()
            bodies = (
                encoder.encode({"ts": ts + number // devices, "properties": properties(number)})
                for number in range(REPORTS)
            )
            await self._bus.publish(
                [
                    OutgoingMessage(f"thing.{device_sn(number % devices)}.up.report", body)
                    for number, body in enumerate(bodies)
                ]
            )
            await drained(self._bus)
            rates.append(REPORTS / (time.perf_counter() - started))
        return median_value(rates)

    def online(self) -> set[str]:
        """Return the SNs of the devices that applications see as ONLINE."""
        mine = {"tenant": TENANT, "application.applicationId": self._application["applicationId"]}
        online = {**mine, "connectStatus": "ONLINE", "model": MODEL}
        return {row["sn"] for row in self._device.devices.find(online, {"sn": 1})}

    async def wait_presence(self, first: int, last: int) -> float:
        """Return the seconds until exactly these devices are ONLINE."""
        wanted = {device_sn(number) for number in range(first, last)}

        async def same() -> bool:
            return await asyncio.to_thread(self.online) == wanted

        return await _until(same)

    async def restart(self, name: str, crowd: "Crowd", first: int) -> tuple[float, float]:
        """Kill a process during reconnects; return seconds until connected and ONLINE."""
        pid = _ready(self._platform)["pids"][name]
        os.kill(pid, signal.SIGKILL)
        began = time.perf_counter()
        crowd.connect_only(first, first + CONNECTED)
        await crowd.wait_connected(CONNECTED)
        there = time.perf_counter() - began
        await self.wait_presence(first, first + CONNECTED)
        return there, time.perf_counter() - began

    async def rotations(self) -> list[float]:
        """Return the seconds from each key rotation to the end of the old connection."""
        rpc = RpcClient(self._bus)
        loop = asyncio.get_running_loop()
        taken = []
        for number in range(CONNECTED + SWAPPED, CONNECTED + SWAPPED + ROTATED):
            device = Device(device_sn(number), device_key(number), lambda _: None)
            await loop.create_connection(lambda: device, "127.0.0.1", self._platform.mqtt_port)  # noqa: B023
            await device.ready
            await asyncio.sleep(0.2)
            began = time.perf_counter()
            reference = DeviceRef(device_sn(number), FIRST_ID + number, TENANT)
            await rpc.call("rpc.auth.issue_device_credentials", reference, DeviceCredentials)
            async with asyncio.timeout(PATIENCE):
                await device.over
            taken.append(time.perf_counter() - began)
        return taken

    async def searches(self) -> dict[str, list[float]]:
        """Return the seconds of lists and searches over HTTP, by kind."""
        searches: dict[str, Json] = {
            "list": {"pageSize": 20, "pageNumber": 1},
            "list, page 50": {"pageSize": 20, "pageNumber": 50},
            "by SN": {"pageSize": 20, "pageNumber": 1, "sn": device_sn(765_432)},
            "online": {"pageSize": 20, "pageNumber": 1, "connectStatus": ["ONLINE"]},
            "by name": {"pageSize": 20, "pageNumber": 1, "name": "meter 7654"},
            "by keyword": {"pageSize": 20, "pageNumber": 1, "keyword": "D0765"},
        }
        base = self._platform.ready["base_url"]
        times: dict[str, list[float]] = {name: [] for name in searches}
        async with aiohttp.ClientSession(base) as http:
            form = {**self._platform.ready["application"], "grant_type": "client_credentials"}
            async with http.post("/oauth/token", data=form) as answer:
                token = (await answer.json())["data"]["access_token"]
            headers = {"Authorization": f"Bearer {token}"}
            for _ in range(SEARCHES):
                for name, body in searches.items():
                    began = time.perf_counter()
                    path = "/device/openapi/v1/devices/search"
                    async with http.post(path, json=body, headers=headers) as answer:
                        content = await answer.read()
                    if not answer.ok and answer.status != GATEWAY_TIMEOUT:
                        raise RuntimeError(f"{name}: {answer.status} {content[:300]!r}")
                    times[name].append(time.perf_counter() - began)
        return times


class Crowd:
    """The process with the devices."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._updated = asyncio.Event()
        self.connected = 0

    def connect_only(self, first: int, last: int) -> None:
        """Connect the devices from `first` to before `last`, and disconnect all others."""
        assert self._process.stdin is not None
        self._updated.clear()
        self._process.stdin.write(b"%d %d\n" % (first, last))

    async def wait_connected(self, number: int) -> float:
        """Return the seconds until `number` devices are connected after a change."""
        await self._updated.wait()

        async def enough() -> bool:
            return self.connected == number

        return await _until(enough)

    async def follow(self) -> None:
        """Read the number of connected devices."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.connected = int(line)
            self._updated.set()


@asynccontextmanager
async def run_crowd(port: int) -> Any:
    """Run the process with the devices."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.crowd", str(port),
        cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    crowd = Crowd(process)
    following = asyncio.ensure_future(crowd.follow())
    try:
        yield crowd
    finally:
        following.cancel()
        process.kill()
        await process.wait()


async def _until(condition: Callable[[], Awaitable[bool]]) -> float:
    began = time.perf_counter()
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.3)
    return time.perf_counter() - began


def _ready(platform: Platform) -> Json:
    found: Json = msgspec.json.decode((platform.directory / "ready.json").read_bytes())
    return found


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1]


def _shown(memory: dict[str, float], before: dict[str, float], number: int) -> str:
    """Return the memory per item, and the processes that use the most."""
    grown = {name: size - before.get(name, 0.0) for name, size in memory.items()}
    maximum = sorted(grown.items(), key=lambda entry: -entry[1])[:3]
    parts = ", ".join(f"{name} {size:+.0f} MiB" for name, size in maximum)
    return f"{sum(grown.values()) * 1024 / number:.1f} KiB ({parts})"


def _processes(memory: dict[str, float]) -> str:
    return ", ".join(f"{name} {size:.0f}" for name, size in sorted(memory.items()))


async def measure(platform: Platform, bus: Bus) -> list[Row]:
    """Run all measurements."""
    scale = Scale(platform, bus)
    scale.prepare()
    alone = await scale.ingest(REPORTING)
    empty = platform.memory()
    await asyncio.to_thread(scale.fill)
    registered = platform.memory()
    rows = []
    async with run_crowd(platform.mqtt_port) as crowd:
        crowd.connect_only(0, CONNECTED)
        there = await crowd.wait_connected(CONNECTED)
        right = await scale.wait_presence(0, CONNECTED)
        rows.append(
            Row(
                f"seconds until {CONNECTED:,} have logged in",
                f"{there:.1f}",
                f"+ {right:.1f} right",
            )
        )
        await asyncio.sleep(3)
        connected = platform.memory()
        beside = await scale.ingest(REPORTING)
        spread = await scale.ingest(CONNECTED)
        rows += _ingest_rows(alone, beside, spread)
        rows.append(_rotation_row(await scale.rotations()))
        first = 0
        for name in KILLED:
            first = SWAPPED - first
            there, right = await scale.restart(name, crowd, first)
            rows.append(
                Row(
                    f"presence right after {name} was killed, s",
                    f"{right:.1f}",
                    f"{there:.1f} until the devices are there",
                    None,
                    "<= 30",
                    right <= 30,
                )
            )
            await asyncio.sleep(5)
        after = platform.process_memory(_ready(platform)["pids"])
        rows += _search_rows(await scale.searches())
    return [
        Row(f"memory with {CONNECTED:,} connected of {REGISTERED:,}, MiB", _processes(connected)),
        Row("memory after all restarts, MiB", _processes(after)),
        Row("memory of a connected device", _shown(connected, registered, CONNECTED)),
        Row("memory of a registered device", _shown(registered, empty, REGISTERED)),
        *rows,
    ]


def _ingest_rows(alone: float, beside: float, spread: float) -> list[Row]:
    ratio = beside / alone
    return [
        Row(
            f"ingest of {REPORTING} devices: reports/s beside all others",
            f"{beside:,.0f}",
            f"{alone:,.0f} alone",
            ratio,
            ">= 0.90",
            ratio >= 0.9,
        ),
        Row(f"ingest of {CONNECTED:,} devices: reports/s", f"{spread:,.0f}"),
    ]


def _search_rows(times: dict[str, list[float]]) -> list[Row]:
    return [
        Row(
            f"devices, {name}: p95, ms",
            f"{_p95(some) * 1000:.1f}",
            f"{median_value(some) * 1000:.1f} p50",
            None,
            "<= 50",
            _p95(some) <= 0.05,
        )
        for name, some in times.items()
    ]


def _rotation_row(taken: list[float]) -> Row:
    return Row(
        "a key rotated, its connection closed: p95, ms",
        f"{_p95(taken) * 1000:.0f}",
        f"{median_value(taken) * 1000:.0f} p50",
        None,
        "<= 1000",
        _p95(taken) <= 1.0,
    )


async def run() -> list[Row]:
    """Run the benchmark."""
    maximum = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
    directory = Path(tempfile.mkdtemp(prefix="thingway-bench-"))
    platform = Platform(directory)
    try:
        platform.wait()
        password = platform.state["secrets"]["nats.admin"]
        bus = await Bus.connect(platform.nats_url, user="admin", password=password, name="bench")
        try:
            return await measure(platform, bus)
        finally:
            await bus.drain()
    finally:
        platform.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    for row in asyncio.run(run()):
        print(row)
