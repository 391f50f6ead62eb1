"""Live updates: from an MQTT publish to a WebSocket push, and what an idle socket costs.

The whole platform runs as `thingway up` starts it; 100 devices report ten times a second
each, and each of 100 sockets at the gateway hears of one of them. Publishers and readers
live in processes of their own, so that neither waits for the other.
"""

import asyncio
import json
import multiprocessing
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import aiomqtt
import uvloop
from websockets.asyncio.client import connect

from bench.platform import Platform
from bench.table import Row
from deploy.platform.openapi import OpenApi

DEVICES = 100
RATE = 10
"""Reports of one device in a second."""
WARM, MEASURED = 3, 15
"""Seconds."""
IDLE = 5000
OPENING = 50
"""Sockets that are opened at a time."""
LATENCY_BAR = 50.0
MEMORY_BAR = 40.0
PRODUCT = {
    "name": "Live",
    "snPrefixes": ["LIVE"],
    "tsl": {
        "version": "v1.0",
        "properties": [
            {
                "id": "at",
                "propertyKey": "at",
                "name": "At",
                "accessMode": "R",
                "dataSpec": {"dataType": "DOUBLE"},
            }
        ],
        "events": [],
        "services": [],
    },
}


async def _token(ready: dict[str, Any]) -> str:
    form = {
        "grant_type": "password",
        "username": ready["user"]["email"],
        "password": ready["user"]["password"],
        **ready["console_client"],
    }
    async with (
        aiohttp.ClientSession(ready["base_url"]) as session,
        session.post("/oauth2/token", data=form) as answer,
    ):
        body = await answer.json()
        return str(body["data"]["access_token"])


def _url(ready: dict[str, Any]) -> str:
    return str(ready["base_url"]).replace("http", "ws", 1) + "/websocket"


async def _devices(ready: dict[str, Any]) -> list[tuple[str, str]]:
    app = ready["application"]
    found = []
    async with OpenApi(ready["base_url"], app["client_id"], app["client_secret"]) as api:
        await api.put_product("LIVE-1", PRODUCT)
        for number in range(DEVICES):
            device_id = await api.add_device(f"LIVE{number:04}", f"Live {number}", "LIVE-1")
            found.append(await api.issue_credentials(device_id))
    return found


def _publish(host: str, port: int, devices: list[tuple[str, str]], seconds: float) -> None:
    """Report the time at which it is reported, each device at its own moments."""

    async def report(number: int, sn: str, key: str) -> None:
        async with aiomqtt.Client(host, port, username=sn, password=key) as client:
            end = time.monotonic() + seconds
            due = time.monotonic() + number / DEVICES / RATE
            while due < end:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                body = json.dumps({"properties": {"at": time.time()}})
                await client.publish(f"thing/{sn}/up/report", body, qos=1)
                due += 1 / RATE

    async def everyone() -> None:
        await asyncio.gather(*(report(at, sn, key) for at, (sn, key) in enumerate(devices)))

    uvloop.run(everyone())


async def _latencies(ready: dict[str, Any], token: str) -> list[float]:
    """Milliseconds from each report to its push."""
    devices = await _devices(ready)
    host, _, port = ready["mqtt_url"].removeprefix("mqtt://").partition(":")
    found: list[float] = []

    async def hear(sn: str) -> None:
        key = f"direct.device.{sn}.at"
        header = {"Authorization": f"Bearer {token}"}
        async with connect(_url(ready), additional_headers=header, compression=None) as socket:
            wanted = {"event_type": "Exchange", "payload": {"entity_key": [key]}}
            await socket.send(json.dumps(wanted))
            async for frame in socket:
                now = time.time()
                sent = json.loads(frame)["payload"]["values"][key]["value"]
                found.append((now - sent) * 1000)

    listening = [asyncio.ensure_future(hear(sn)) for sn, _ in devices]
    publisher = multiprocessing.get_context("spawn").Process(
        target=_publish, args=(host, int(port), devices, WARM + MEASURED), daemon=True
    )
    publisher.start()
    await asyncio.sleep(WARM + MEASURED / 10)
    found.clear()
    await asyncio.to_thread(publisher.join)
    for task in listening:
        task.cancel()
    await asyncio.gather(*listening, return_exceptions=True)
    return sorted(found)


async def _idle(platform: Platform, token: str) -> tuple[float, float]:
    """KiB that one idle socket costs `management` and the gateway."""
    before = platform.memory()
    header = {"Authorization": f"Bearer {token}"}
    subscription = json.dumps(
        {"event_type": "Exchange", "payload": {"entity_key": ["direct.device.X.t"]}}
    )
    sockets = []
    for _ in range(IDLE // OPENING):
        opened = await asyncio.gather(
            *(
                connect(
                    _url(platform.ready),
                    additional_headers=header,
                    compression=None,
                    ping_interval=None,
                )
                for _ in range(OPENING)
            )
        )
        await asyncio.gather(*(socket.send(subscription) for socket in opened))
        sockets += opened
    await asyncio.sleep(1.0)
    after = platform.memory()
    await asyncio.gather(*(socket.close() for socket in sockets))
    return (
        (after["management"] - before["management"]) * 1024 / len(sockets),
        (after["gateway"] - before["gateway"]) * 1024 / len(sockets),
    )


async def run() -> list[Row]:
    """Measure both."""
    directory = Path(tempfile.mkdtemp(prefix="thingway-bench-"))
    platform = Platform(directory)
    try:
        platform.wait()
        token = await _token(platform.ready)
        found = await _latencies(platform.ready, token)
        idle, passed = await _idle(platform, token)
    finally:
        platform.stop()
        shutil.rmtree(directory, ignore_errors=True)
    p50, p99 = found[len(found) // 2], found[int(len(found) * 0.99)]
    rate = len(found) / (MEASURED * 0.9)
    return [
        Row(
            "MQTT publish to WebSocket push, 1,000 reports/s, 100 sockets, ms",
            f"p50 {p50:.1f}, p99 {p99:.1f} ({rate:,.0f}/s heard)",
            bar=f"p99 <= {LATENCY_BAR:.0f}",
            ok=p99 <= LATENCY_BAR,
        ),
        Row(
            f"memory of one of {IDLE:,} idle sockets, KiB",
            f"management {idle:.1f}, gateway {passed:.1f}",
            bar=f"<= {MEMORY_BAR:.0f}",
            ok=idle <= MEMORY_BAR,
        ),
    ]
