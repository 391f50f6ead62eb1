"""Benchmark of the platform: start time, memory, HTTP reports, history pages.

A history page is compared with the same query by the driver, alternately, and with a page of a
history ten times as long. Both clients are blocking and minimal (`bench.client`). The ratio to the
driver is one of processor time: a page passes through four processes, so other work on the machine
delays it more often than the driver.
"""

import asyncio
import base64
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from pymongo import MongoClient, WriteConcern

from bench.client import Client
from bench.stack import ROOT, processor_seconds
from bench.table import Row, median_value
from deploy.platform import ports
from libs.common.clock import now_ms
from libs.common.store.migrations import CLUSTERED_OPTIONS
from services.device.telemetry.partitions import (
    PARTITION_MS,
    collection_name,
    history_key,
    partition_number,
)

PAGES, PAGE = 1000, 100
ROUNDS = 5
SERVING = ("gateway", "device", "redis", "mongod")
"""Processes that answer a history page."""
SHORT, LONG = 100_000, 1_000_000
REPORT = '{"properties":{"temperature":21.5,"humidity":40,"battery":90}}'


class Platform:
    """A running platform."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.port = ports.claim_random()
        self.mqtt_port = ports.claim_random()
        nats = ports.claim_random()
        self.nats_url = f"nats://127.0.0.1:{nats}"
        command = [str(Path(sys.executable).with_name("thingway")), "up", "--data", str(directory)]
        listeners = [
            "--port",
            str(self.port),
            "--mqtt-port",
            str(self.mqtt_port),
            "--nats-port",
            str(nats),
        ]
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [*command, *listeners],
            cwd=ROOT,
            env={
                **os.environ,
                "THINGWAY_PRINCIPAL_RATE": "0",
                "THINGWAY_ADDRESS_RATE": "0",
                "THINGWAY_END_WITH_PARENT": "1",
                **settings,
            },
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Return when it is ready."""
        directory = self.directory
        while not (directory / "ready.json").exists():
            if self.process.poll() is not None:
                raise RuntimeError("the platform did not start")
            time.sleep(0.02)
        self.seconds = time.perf_counter() - self.started
        self.ready: dict[str, Any] = msgspec.json.decode((directory / "ready.json").read_bytes())
        self.state: dict[str, Any] = msgspec.json.decode((directory / "state.json").read_bytes())

    def stop(self) -> None:
        """Stop it."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def memory(self) -> dict[str, float]:
        """Return the proportional memory of each process in MiB."""
        return self.process_memory(self.ready["pids"])

    @staticmethod
    def process_memory(pids: dict[str, int]) -> dict[str, float]:
        """Return the proportional memory of the given processes in MiB."""
        return {name: _pss(pid) for name, pid in pids.items()}

    def database(self) -> Any:
        """Return the device service's database, as administrator."""
        password = self.state["secrets"]["mongo.admin"]
        port = self.state["ports"]["mongod"]
        url = f"mongodb://admin:{password}@127.0.0.1:{port}/?directConnection=true"
        client: MongoClient[dict[str, Any]] = MongoClient(url)
        return client.get_database("thingway_device", write_concern=WriteConcern("majority"))


def _pss(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def http_reports(platform: Platform) -> list[Row]:
    """Measure one report per request through the gateway with wrk."""
    if shutil.which("wrk") is None:
        return [Row("HTTP reports, one per request", "not measured: no wrk on PATH")]
    device = platform.ready["device"]
    login = base64.b64encode(f"{device['sn']}:{device['key']}".encode()).decode()
    script = platform.directory / "report.lua"
    script.write_text(
        f"wrk.method='POST'; wrk.body='{REPORT}'\n"
        f"wrk.headers['Authorization']='Basic {login}'\n"
        "wrk.headers['Content-Type']='application/json'\n"
    )
    url = f"{platform.ready['base_url']}/ingest/v1/{device['sn']}/report"
    command = ["wrk", "-t1", "-c32", "-d5", "--latency", "-s", str(script), url]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", out)
    p99 = re.search(r"^\s+99%\s+(\S+)", out, re.MULTILINE)
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    note = f", {refused[1]} refused (rate limit)" if refused else ""
    shown = f"{float(rate[1]):,.0f}/s, p99 {p99[1]}{note}" if rate and p99 else out
    return [Row("HTTP reports, one per request", shown)]


class Histories:
    """A device whose history is written to the database and read through the API."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._database = platform.database()

    async def rows(self) -> list[Row]:
        """Compare with the driver, with a short and a long history."""
        base = self._platform.ready["base_url"]
        async with aiohttp.ClientSession(base) as http:
            token = await self._token(http)
            headers = {"Authorization": f"Bearer {token}"}
            short_id = await self._device(http, headers, "BENCHSHORT", SHORT)
            long_id = await self._device(http, headers, "BENCHLONG", LONG)
        short, long, driver, costs, driver_costs = [], [], [], [], []
        with Client(base, token) as client:
            for _ in range(ROUNDS):
                number = PAGES // ROUNDS
                before = self._spent()
                long += [self._page(client, long_id) for _ in range(number)]
                between = self._spent()
                driver += [self._query(long_id) for _ in range(number)]
                costs.append((between - before) / number)
                driver_costs.append((self._spent() - between) / number)
                short += [self._page(client, short_id) for _ in range(number)]
        ratio = median_value(
            [ours / other for ours, other in zip(costs, driver_costs, strict=True)]
        )
        growth = median_value(long) / median_value(short)
        return [
            Row(
                f"history page of {PAGE} of {LONG:,}, processor time in ms",
                f"{median_value(costs) * 1000:.2f}",
                f"{median_value(driver_costs) * 1000:.2f} driver",
                ratio,
                "<= 2.0",
                ratio <= 2.0,
            ),
            Row(
                "the same, latency in ms",
                f"{median_value(long) * 1000:.2f}",
                f"{median_value(driver) * 1000:.2f} driver",
                median_value(long) / median_value(driver),
            ),
            Row(
                "the same, history ten times as long",
                f"{median_value(long) * 1000:.2f}",
                f"{median_value(short) * 1000:.2f} of {SHORT:,}",
                growth,
                "<= 1.3",
                growth <= 1.3,
            ),
        ]

    def _spent(self) -> float:
        """Return the processor seconds of this client and the servers that answer a page."""
        pids = self._platform.ready["pids"]
        return time.process_time() + sum(processor_seconds(pids[name]) for name in SERVING)

    async def _token(self, http: aiohttp.ClientSession) -> str:
        form = {**self._platform.ready["application"], "grant_type": "client_credentials"}
        async with http.post("/oauth/token", data=form) as answer:
            return str((await answer.json())["data"]["access_token"])

    async def _device(
        self, http: aiohttp.ClientSession, headers: dict[str, str], sn: str, records: int
    ) -> int:
        body = {"snDevEUI": sn, "name": sn}
        async with http.post("/device/openapi/v1/devices", json=body, headers=headers) as answer:
            device_id = int((await answer.json())["data"]["deviceId"])
        end = now_ms()
        start = max(end - records * 500, partition_number(end) * PARTITION_MS)
        name = collection_name(partition_number(end))
        if name not in self._database.list_collection_names():
            self._database.create_collection(name, **CLUSTERED_OPTIONS)
        step = max((end - start) / records, 0.01)
        for first in range(0, records, 20_000):
            self._database[name].insert_many(
                {
                    "_id": history_key(device_id, int(start + number * step), number),
                    "p": {"temperature": 20.5, "humidity": 40, "battery": number % 100},
                }
                for number in range(first, min(first + 20_000, records))
            )
        return device_id

    @staticmethod
    def _page(client: Client, device_id: int) -> float:
        path = f"/device/openapi/v1/devices/{device_id}/properties/history"
        started = time.perf_counter()
        body = msgspec.json.decode(client.get(f"{path}?pageSize={PAGE}&startTime=0"))
        seconds = time.perf_counter() - started
        if len(body["data"]["list"]) != PAGE:
            raise RuntimeError("the page is not full")
        return seconds

    def _query(self, device_id: int) -> float:
        now = now_ms()
        bounds = {"$gte": history_key(device_id, 0, 0), "$lte": history_key(device_id, now, 0)}
        started = time.perf_counter()
        collection = self._database[collection_name(partition_number(now))]
        found = list(collection.find({"_id": bounds}, sort=[("_id", -1)], limit=PAGE))
        seconds = time.perf_counter() - started
        if len(found) != PAGE:
            raise RuntimeError("the query found too little")
        return seconds


async def run() -> list[Row]:
    """Run the benchmark."""
    directory = Path(tempfile.mkdtemp(prefix="thingway-bench-"))
    platform = Platform(directory)
    try:
        platform.wait()
        await asyncio.sleep(3)
        memory = platform.memory()
        parts = ", ".join(f"{name} {size:.0f}" for name, size in sorted(memory.items()))
        return [
            Row("seconds from `thingway up` to ready, first start", f"{platform.seconds:.1f}"),
            Row("memory at rest, MiB", f"{sum(memory.values()):.0f} ({parts})"),
            *http_reports(platform),
            *await Histories(platform).rows(),
        ]
    finally:
        platform.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    for row in asyncio.run(run()):
        print(row)
