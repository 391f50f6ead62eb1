"""Benchmark of live updates: latency of pushes, and memory of idle sockets.

The whole platform runs as with `thingway up`; 100 devices report ten times a second each. Each of
100 sockets at the gateway subscribes to one of them; then each of 100 pages over MQTT gets the ids
of all. Publishers and readers run in separate processes, so that neither waits for the other.
"""

import asyncio
import json
import multiprocessing
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import aiomqtt
import uvloop
from websockets.asyncio.client import ClientConnection, connect

from bench.platform import Platform
from bench.table import Row
from deploy.platform.openapi import OpenApiClient
from libs.common.contracts.mqtt import MQTT_WEBSOCKET_PATH, live_topic
from libs.common.http.server import get_open_files_limit
from libs.common.mqtt import encode_packet

DEVICES = 100
RATE = 10
"""Reports per second and device."""
WARM, MEASURED = 3, 15
"""Seconds of warm-up and of measurement."""
IDLE_SOCKETS = min(5000, get_open_files_limit() // 20)
LIMITS = json.dumps({"websockets": 2 * IDLE_SOCKETS, "eachWebsockets": 2 * IDLE_SOCKETS})
ADDRESSES = 10
"""Client addresses; each may have an eighth of a gateway's pages."""
OPENING = 50
"""Sockets opened concurrently."""
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
    async with OpenApiClient(ready["base_url"], app["client_id"], app["client_secret"]) as api:
        await api.put_product("LIVE-1", PRODUCT)
        for number in range(DEVICES):
            device_id = await api.ensure_device(f"LIVE{number:04}", f"Live {number}", "LIVE-1")
            found.append(await api.issue_credentials(device_id))
    return found


def _publish(host: str, port: int, devices: list[tuple[str, str]], seconds: float) -> None:
    """Report the current time, each device at its own offsets."""

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
    """Return the ms from each report to its push, sorted."""
    devices = await _devices(ready)
    host, _, port = ready["mqtt_url"].removeprefix("mqtt://").partition(":")
    found: list[float] = []

    async def receive(sn: str) -> None:
        key = f"direct.device.{sn}.at"
        header = {"Authorization": f"Bearer {token}"}
        async with connect(_url(ready), additional_headers=header, compression=None) as socket:
            wanted = {"event_type": "Exchange", "payload": {"entity_key": [key]}}
            await socket.send(json.dumps(wanted))
            async for frame in socket:
                now = time.time()
                sent = json.loads(frame)["payload"]["values"][key]["value"]
                found.append((now - sent) * 1000)

    listening = [asyncio.ensure_future(receive(sn)) for sn, _ in devices]
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


async def _page(ready: dict[str, Any], token: str) -> tuple[str, str]:
    """Return user name and password of a page."""
    header = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(ready["base_url"], headers=header) as session,
        session.get("/mqtt/web/credentials") as answer,
    ):
        data = (await answer.json())["data"]
        return data["username"], data["password"]


async def _page_latencies(ready: dict[str, Any], token: str) -> list[float]:
    """Return the ms from a report to the MQTT message with the changed id, sorted.

    Messages contain no values. Therefore one device reports when the page has received the previous
    message, while the others report as in the measurement above.
    """
    devices = await _devices(ready)
    host, _, port = ready["mqtt_url"].removeprefix("mqtt://").partition(":")
    (sn, key), crowd = devices[0], devices[1:]
    wanted = await _entity_id(ready, token, sn)
    username, password = await _page(ready, token)
    origin = urlsplit(ready["base_url"])
    page = aiomqtt.Client(
        origin.hostname or "",
        origin.port or 80,
        username=username,
        password=password,
        transport="websockets",
        websocket_path=MQTT_WEBSOCKET_PATH,
    )
    publisher = multiprocessing.get_context("spawn").Process(
        target=_publish, args=(host, int(port), crowd, WARM + MEASURED), daemon=True
    )
    publisher.start()
    found: list[float] = []
    async with page, aiomqtt.Client(host, int(port), username=sn, password=key) as device:
        await page.subscribe(live_topic(username))
        await asyncio.sleep(WARM)
        while publisher.is_alive():
            sent = time.monotonic()
            await device.publish(f"thing/{sn}/up/report", b'{"properties":{"at":1}}', qos=0)
            async for message in page.messages:
                if wanted in json.loads(message.payload)["payload"]["entity_ids"]:
                    break
            found.append((time.monotonic() - sent) * 1000)
    await asyncio.to_thread(publisher.join)
    return sorted(found)


async def _entity_id(ready: dict[str, Any], token: str, sn: str) -> str:
    header = {"Authorization": f"Bearer {token}"}
    body = {"entity_key": [f"direct.device.{sn}.at"], "keyword": sn, "page_size": 10}
    async with (
        aiohttp.ClientSession(ready["base_url"], headers=header) as session,
        session.post("/entity/search", json=body) as answer,
    ):
        (entity,) = (await answer.json())["data"]["content"]
        return str(entity["entity_id"])


async def _idle_pages(
    platform: Platform, held: list[ClientConnection], token: str
) -> tuple[float, float]:
    """Return the KiB that an idle page costs `management` and the gateway."""
    username, password = await _page(platform.ready, token)
    parts = [text.encode() for text in ("bench", username, password)]
    body = b"\x00\x04MQTT\x04\xc2\x00\x00"
    body += b"".join(len(part).to_bytes(2, "big") + part for part in parts)
    url = _url(platform.ready).replace("/websocket", MQTT_WEBSOCKET_PATH)
    return await _idle(platform, held, encode_packet(0x10, body), url, subprotocols=["mqtt"])


async def _idle_sockets(
    platform: Platform, held: list[ClientConnection], token: str
) -> tuple[float, float]:
    """Return the KiB that an idle WebSocket costs `management` and the gateway."""
    said = {"event_type": "Exchange", "payload": {"entity_key": ["direct.device.X.t"]}}
    header = {"Authorization": f"Bearer {token}"}
    text, url = json.dumps(said), _url(platform.ready)
    return await _idle(platform, held, text, url, additional_headers=header)


async def _idle(
    platform: Platform, held: list[ClientConnection], said: str | bytes, url: str, **options: Any
) -> tuple[float, float]:
    """Return the KiB per socket; `held` keeps sockets open, as freed memory is reused."""
    before = platform.memory()
    sockets = []
    for _ in range(IDLE_SOCKETS // OPENING):
        opened = await asyncio.gather(
            *(
                connect(
                    url,
                    compression=None,
                    ping_interval=None,
                    local_addr=(f"127.0.0.{2 + at % ADDRESSES}", 0),
                    **options,
                )
                for at in range(OPENING)
            )
        )
        await asyncio.gather(*(socket.send(said) for socket in opened))
        sockets += opened
    await asyncio.sleep(1.0)
    after = platform.memory()
    held += sockets
    return (
        (after["management"] - before["management"]) * 1024 / len(sockets),
        (after["gateway"] - before["gateway"]) * 1024 / len(sockets),
    )


async def run() -> list[Row]:
    """Run the benchmark."""
    directory = Path(tempfile.mkdtemp(prefix="thingway-bench-"))
    platform = Platform(directory, THINGWAY_TENANT_LIMITS=LIMITS)
    try:
        platform.wait()
        token = await _token(platform.ready)
        found = await _latencies(platform.ready, token)
        pages = await _page_latencies(platform.ready, token)
        held: list[ClientConnection] = []
        idle, passed = await _idle_sockets(platform, held, token)
        page, page_passed = await _idle_pages(platform, held, token)
        await asyncio.gather(*(socket.close() for socket in held))
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
            f"memory of one of {IDLE_SOCKETS:,} idle sockets, KiB",
            f"management {idle:.1f}, gateway {passed:.1f}",
            bar=f"<= {MEMORY_BAR:.0f}",
            ok=idle <= MEMORY_BAR,
        ),
        Row(
            "MQTT publish to the ids on a page over MQTT, 990 reports/s beside, ms",
            f"p50 {pages[len(pages) // 2]:.1f}, p99 {pages[int(len(pages) * 0.99)]:.1f}",
            bar=f"p99 <= {LATENCY_BAR:.0f}",
            ok=pages[int(len(pages) * 0.99)] <= LATENCY_BAR,
        ),
        Row(
            f"memory of one of {IDLE_SOCKETS:,} idle pages over MQTT, KiB",
            f"management {page:.1f}, gateway {page_passed:.1f}",
            bar=f"<= {MEMORY_BAR:.0f}",
            ok=page <= MEMORY_BAR,
        ),
    ]
