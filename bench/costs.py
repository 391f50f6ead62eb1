"""Benchmark of the processor time of a report and a command, over all processes.

Ten devices report at the same time. Over MQTT each of them sends `WINDOW` reports, waits for their
acknowledgements, and repeats. Over HTTP each sends one report after another. Over NATS the
benchmark publishes all reports of the ten devices at once. For commands, an application updates a
property of each device, which confirms it before the next update. The idle consumption of the
processes is subtracted.
"""

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import aiomqtt

from bench.platform import Platform
from bench.stack import processor_seconds
from bench.table import Row
from deploy.platform.openapi import OpenApiClient
from libs.common.bus import Bus, OutgoingMessage
from libs.common.bus.subjects import uplink_subject

DEVICES, REPORTS, HTTP_REPORTS, COMMANDS = 10, 30_000, 4_000, 1_000
WINDOW = 20
"""MQTT reports that a device sends before it waits for their acknowledgements."""
IDLE_SECONDS = 60
"""Seconds of the idle measurement."""
PRODUCT: dict[str, Any] = {
    "name": "Cost",
    "snPrefixes": ["COST"],
    "tsl": {
        "version": "v1.0",
        "properties": [
            {"id": name, "name": name, "accessMode": "RW", "dataSpec": {"dataType": kind}}
            for name, kind in (("temperature", "FLOAT"), ("humidity", "FLOAT"), ("battery", "INT"))
        ],
    },
}
BODY = b'{"properties":{"temperature":21.5,"humidity":40,"battery":90}}'
Devices = list[tuple[int, str, str]]
"""Id, SN and key of each device."""


def _spent(platform: Platform) -> dict[str, float]:
    """Return the processor seconds of each process."""
    return {name: processor_seconds(pid) for name, pid in platform.ready["pids"].items()}


async def _during(platform: Platform, action: Awaitable[None]) -> tuple[dict[str, float], float]:
    """Return the processor seconds of each process during `action`, and the duration."""
    before, began = _spent(platform), time.monotonic()
    await action
    spent = {name: now - before[name] for name, now in _spent(platform).items()}
    return spent, time.monotonic() - began


async def _cost(
    platform: Platform,
    idle: dict[str, float],
    title: str,
    number: int,
    action: Callable[[], Awaitable[None]],
) -> Row:
    async def whole() -> None:
        await action()
        await asyncio.sleep(2)  # include later processing of events

    total, seconds = await _during(platform, whole())
    spent = {name: (took - idle[name] * seconds) / number * 1e6 for name, took in total.items()}
    return Row(
        f"{title}, processor time", f"{sum(spent.values()):,.0f} µs", _shares(spent, ".0f", 1)
    )


def _shares(costs: dict[str, float], form: str, least: float) -> str:
    """Return the processes that cost at least `least`; `form` is the format of a number."""
    shares = sorted(costs.items(), key=lambda share: -share[1])
    return ", ".join(f"{name} {cost:{form}}" for name, cost in shares if cost >= least)


async def _drained(bus: Bus) -> None:
    while (await bus.js.stream_info("UPLINK")).state.messages:
        await asyncio.sleep(0.05)


async def _over_nats(bus: Bus, devices: Devices) -> None:
    await bus.publish(
        [
            OutgoingMessage(uplink_subject(devices[number % DEVICES][1], "report"), BODY)
            for number in range(REPORTS)
        ]
    )
    await _drained(bus)


async def _over_mqtt(platform: Platform, bus: Bus, devices: Devices) -> None:
    async def report(sn: str, key: str) -> None:
        async with _client(platform, sn, key) as client:
            for _ in range(REPORTS // DEVICES // WINDOW):
                await asyncio.gather(
                    *(client.publish(f"thing/{sn}/up/report", BODY, qos=1) for _ in range(WINDOW))
                )

    await asyncio.gather(*(report(sn, key) for _, sn, key in devices))
    await _drained(bus)


async def _over_http(platform: Platform, bus: Bus, devices: Devices) -> None:
    async with aiohttp.ClientSession(platform.ready["base_url"]) as session:

        async def report(sn: str, key: str) -> None:
            login = aiohttp.encode_basic_auth(sn, key)
            for _ in range(HTTP_REPORTS // DEVICES):
                async with session.post(
                    f"/ingest/v1/{sn}/report", data=BODY, headers={"Authorization": login}
                ) as answer:
                    answer.raise_for_status()

        await asyncio.gather(*(report(sn, key) for _, sn, key in devices))
    await _drained(bus)


async def _commands(platform: Platform, api: OpenApiClient, devices: Devices) -> None:
    async def execute_commands(device: int, sn: str, key: str) -> None:
        async with _client(platform, sn, key) as client:
            await client.subscribe(f"thing/{sn}/down/#", qos=1)
            for _ in range(COMMANDS // DEVICES):
                path = f"/device/openapi/v1/devices/{device}/properties"
                await api.request("PATCH", path, {"properties": {"battery": 50}})
                command = json.loads((await anext(client.messages)).payload)
                reply = {"commandId": command["commandId"], "status": "SUCCESS"}
                await client.publish(f"thing/{sn}/up/reply", json.dumps(reply), qos=1)

    await asyncio.gather(*(execute_commands(*device) for device in devices))


def _client(platform: Platform, sn: str, key: str) -> aiomqtt.Client:
    return aiomqtt.Client("127.0.0.1", platform.mqtt_port, username=sn, password=key)


async def measure(platform: Platform) -> list[Row]:
    """Measure each kind of message."""
    app = platform.ready["application"]
    password = platform.state["secrets"]["nats.admin"]
    bus = await Bus.connect(platform.nats_url, user="admin", password=password, name="bench")
    url, identity, secret = platform.ready["base_url"], app["client_id"], app["client_secret"]
    async with OpenApiClient(url, identity, secret) as api:
        await api.put_product("COST-1", PRODUCT)
        devices = []
        for number in range(DEVICES):
            device = await api.ensure_device(f"COST{number}", f"Cost {number}", "COST-1")
            devices.append((device, *await api.issue_credentials(device)))
        await _over_nats(bus, devices)  # warm-up
        kinds: list[tuple[str, int, Callable[[], Awaitable[None]]]] = [
            ("a report, on the bus", REPORTS, lambda: _over_nats(bus, devices)),
            ("a report over MQTT", REPORTS, lambda: _over_mqtt(platform, bus, devices)),
            ("a report over HTTP", HTTP_REPORTS, lambda: _over_http(platform, bus, devices)),
            ("a command", COMMANDS, lambda: _commands(platform, api, devices)),
        ]
        await asyncio.sleep(2)
        rest, seconds = await _during(platform, asyncio.sleep(IDLE_SECONDS))
        idle = {name: took / seconds for name, took in rest.items()}
        rows = [await _cost(platform, idle, *kind) for kind in kinds]
        summary = f"{sum(idle.values()):.1%} of a processor"
        rows.append(
            Row("the platform at rest, processor time", summary, _shares(idle, ".2%", 0.0001))
        )
    await bus.drain()
    return rows


async def run() -> list[Row]:
    """Start the platform, measure, stop it."""
    directory = Path(tempfile.mkdtemp(prefix="thingway-bench-"))
    platform = Platform(directory)
    try:
        platform.wait()
        return await measure(platform)
    finally:
        platform.stop()
        shutil.rmtree(directory, ignore_errors=True)
