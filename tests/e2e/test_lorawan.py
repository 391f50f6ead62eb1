"""A sensor behind a network server on the whole platform: heard, stored, told."""

import asyncio
from base64 import b64encode
from typing import Any

import aiomqtt
import msgspec
import pytest

from tests.e2e.callers import Application, Console
from tests.e2e.platform import Platform
from tests.e2e.waiting import until
from tests.integration.management.networks.conftest import running_broker
from tests.unit.management.networks.samples import (
    APPLICATION,
    chirpstack,
    device_of,
    heard_now,
)

pytestmark = pytest.mark.xdist_group("platform")

MODEL, EUI = "LORA-1", "24E124136B502217"
TOPIC = f"application/{APPLICATION}/device/{EUI.lower()}"
OWN = "chirpstack.integration"
SCRIPT = """
function decodeUplink({bytes}) { return {data: {temperature: bytes[0] / 10, interval: bytes[1]}} }
function encodeDownlink({data}) { return {bytes: [255, data.interval], fPort: 7} }
"""
TSL = {
    "version": "v1.0",
    "properties": [
        {"id": "temperature", "name": "t", "accessMode": "R", "dataSpec": {"dataType": "DOUBLE"}},
        {"id": "interval", "name": "i", "accessMode": "RW", "dataSpec": {"dataType": "INT"}},
    ],
    "events": [],
    "services": [],
}


async def test_a_sensor_behind_chirpstack_reports_and_gets_commands(
    platform: Platform, application: Application, console: Console, tmp_path
) -> None:
    """Copies by other gateways are one report; a value is sent down as bytes."""
    product = {"name": MODEL, "snPrefixes": [], "tsl": TSL}
    await application.data("PUT", f"/products/{MODEL}", product)
    await application.data("PUT", f"/products/{MODEL}/codec", {"script": SCRIPT})
    with running_broker(tmp_path) as broker:
        settings = {f"{OWN}.{name}": value for name, value in broker.settings.items()}
        await console.data("POST", "/entity/property/update", {"exchange": settings})
        body = {
            "name": "sensor",
            "integration": "chirpstack",
            "param_entities": {f"{OWN}.add_device.dev_eui": EUI, f"{OWN}.add_device.model": MODEL},
        }
        await console.data("POST", "/device", body)
        (device,) = [
            entry for entry in (await search(console))["content"] if entry["name"] == "sensor"
        ]
        async with asyncio.timeout(60), broker.client() as server:
            await server.subscribe(f"{TOPIC}/command/down", qos=1)
            for gateway in ("0016c001f153a14c", "0016c001f153a14d", "0016c001f153a14c"):
                up = heard_now(EUI, 7, b"\xd7\x05", gateway)
                await server.publish(f"{TOPIC}/event/up", up, qos=1)
            await server.publish(f"{TOPIC}/event/up", heard_now(EUI, 8, b"\xd8\x05"), qos=1)
            frames = await until(lambda: read(console, device["id"], 2))
            assert [frame["values"]["temperature"] for frame in frames] == [21.6, 21.5]
            assert frames[0]["gateways"] == [
                {"gateway": "0016c001f153a14c", "rssi": -36, "snr": 10.5}
            ]

            exchange = {"exchange": {f"chirpstack.device.{EUI}.interval": 9}}
            await console.data("POST", "/entity/property/update", exchange)
            command = await next_command(server)
            assert (command["data"], command["fPort"]) == (b64encode(b"\xff\x09").decode(), 7)
            for event, more in (("txack", {}), ("ack", {"acknowledged": True})):
                said = chirpstack(queueItemId=command["id"], deviceInfo=device_of(EUI), **more)
                await server.publish(f"{TOPIC}/event/{event}", said, qos=1)
            await until(lambda: succeeded(console, device["id"]))
        await console.data("POST", "/entity/property/update", {"exchange": {f"{OWN}.broker": ""}})


async def search(console: Console) -> Any:
    """Return the devices of the integration."""
    return await console.data("POST", "/device/search", {"page_size": 100, "page_number": 1})


async def read(console: Console, device: str, count: int) -> Any:
    """Return the frames of a device once there are `count`."""
    page = await console.data("POST", f"/device/{device}/frames/search", {"page_size": 10})
    return page["content"] if len(page["content"]) >= count else None


async def next_command(server: aiomqtt.Client) -> Any:
    """Return the next downlink that is queued at the server."""
    return msgspec.json.decode((await anext(server.messages)).payload)


async def succeeded(console: Console, device: str) -> bool:
    """Return whether the last command of a device succeeded."""
    page = await console.data("POST", f"/device/{device}/commands/search", {"page_size": 1})
    return bool(page["content"][0]["status"] == "SUCCESS")
