"""ONLINE, OFFLINE and DISCONNECT, from real connections."""

import pytest

from tests.e2e.devices import Device
from tests.e2e.listening import Listener
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("platform")


async def test_a_connection_is_presence(device: Device, events: Listener):
    """DISCONNECT before the first connection, ONLINE during it, OFFLINE after it."""
    assert await device.connect_status() == "DISCONNECT"
    async with device.mqtt():
        await events.wait(f"event.default.device.{device.id}.online")
        assert await device.connect_status() == "ONLINE"
    event = await events.wait(f"event.default.device.{device.id}.offline")
    assert event["connectStatus"] == "OFFLINE"
    assert await device.connect_status() == "OFFLINE"


async def test_a_second_connection_keeps_a_device_online(device: Device, events: Listener):
    """A device is OFFLINE after its last connection has ended."""
    async with device.mqtt():
        async with device.nats():
            await device.becomes("ONLINE")
        await device.http("GET", "commands")
        assert await device.connect_status() == "ONLINE"


async def test_a_takeover_keeps_a_device_online(device: Device, events: Listener):
    """A second connection with the same MQTT client id replaces the first, and counts."""
    async with device.mqtt(identifier=f"t-{device.sn}") as first:
        await device.becomes("ONLINE")
        async with device.mqtt(identifier=f"t-{device.sn}") as second:
            await first.closed()
            await second.report({"counter": 1})
            await device.stored({"counter": 1})
            assert await device.connect_status() == "ONLINE"
    await device.becomes("OFFLINE")


async def test_an_http_report_is_presence(device: Device, events: Listener):
    """A report over HTTP makes a device ONLINE."""
    await device.http("POST", "report", {"properties": {"counter": 1}})
    await events.wait(f"event.default.device.{device.id}.online")
    assert await device.connect_status() == "ONLINE"


async def test_presence_is_right_again_after_the_service_was_away(
    platform: Platform, application, events: Listener
):
    """Changes while `device` was dead are known after its restart."""
    leaving, coming, staying = [await application.add_device() for _ in range(3)]
    async with staying.mqtt():
        async with leaving.mqtt():
            await leaving.becomes("ONLINE")
            await staying.becomes("ONLINE")
            pid = await platform.kill("device")
        async with coming.mqtt():
            await platform.restarted("device", pid)
            await coming.becomes("ONLINE")
            await leaving.becomes("OFFLINE")
            assert await staying.connect_status() == "ONLINE"
    await coming.becomes("OFFLINE")
    await staying.becomes("OFFLINE")
