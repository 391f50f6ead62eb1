"""What devices may send by mistake or malice: refused with a reason, and good reports flow on."""

import contextlib
import json
import time

import aiomqtt
import pytest

from tests.e2e.devices import Device
from tests.e2e.listening import Listener

pytestmark = pytest.mark.xdist_group("platform")

BAD = {
    "garbage": b"\x00\xff\xfe garbage",
    "not JSON": b"{",
    "empty": b"",
    "not an object": b"[1]",
    "no properties": b"{}",
    "unknown property": b'{"properties":{"nope":1}}',
    "wrong type": b'{"properties":{"temperature":"warm"}}',
    "out of bounds": b'{"properties":{"temperature":71}}',
    "too old": b'{"ts":1,"properties":{"counter":1}}',
    "ts is text": b'{"ts":"now","properties":{"counter":1}}',
    "larger than int64": b'{"properties":{"counter":99999999999999999999999}}',
    "deep": b'{"properties":{"wifi":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}}",
    "huge": b'{"properties":{"counter":1},"x":"' + b"x" * 300_000 + b'"}',
}


@pytest.mark.parametrize(("name", "qos"), [(name, at % 2) for at, name in enumerate(BAD)])
async def test_a_bad_report_is_explained(device: Device, events, dead, name: str, qos: int):
    """A rejected report is in `DEAD` with the reason, once, and listeners get it."""
    async with device.mqtt() as mqtt:
        await mqtt.send("report", BAD[name], qos)
        refused = await dead.wait(f"dead.uplink.{device.sn}")
        assert refused["reason"]
        rejected = await events.wait(f"event.default.device.{device.id}.rejected")
        assert rejected["faults"]
        await mqtt.report({"counter": 7})
        await device.stored({"counter": 7})
    assert len(await device.history()) == 1
    assert len([one for one in dead.heard if one.subject.endswith(device.sn)]) == 1


async def test_a_report_from_the_future_is_refused(device: Device, dead: Listener):
    """More than five minutes ahead is refused, a minute ahead is not."""
    now = int(time.time() * 1000)
    async with device.mqtt() as mqtt:
        await mqtt.report({"counter": 1}, ts=now + 600_000)
        await mqtt.report({"counter": 2}, ts=now + 60_000)
        refused = await dead.wait(f"dead.uplink.{device.sn}")
        await device.stored({"counter": 2})
    assert "in the future" in refused["reason"]
    assert json.loads(refused["payload"])["properties"] == {"counter": 1}


async def test_an_oversized_packet_ends_only_its_own_connection(device: Device, application):
    """A packet above the server's limit closes the connection; the next one works."""
    other = await application.add_device()
    async with other.mqtt() as bystander:
        async with device.mqtt() as mqtt:
            with contextlib.suppress(aiomqtt.MqttError):  # it may end before all is sent
                await mqtt.send("report", b"x" * 2_000_000, qos=0)
            await mqtt.closed()
        await bystander.report({"counter": 1})
    await other.stored({"counter": 1})
    async with device.mqtt() as mqtt:
        await mqtt.report({"counter": 2})
    await device.stored({"counter": 2})


async def test_good_properties_of_a_partly_bad_report_are_kept(device: Device, events, dead):
    """Bad properties are refused one by one, each with its reason."""
    async with device.mqtt() as mqtt:
        await mqtt.report({"counter": 1, "temperature": 400, "nope": True, "led": True})
    await device.stored({"counter": 1, "led": True})
    rejected = await events.wait(f"event.default.device.{device.id}.rejected")
    assert {fault["path"] for fault in rejected["faults"]} == {
        "properties.temperature",
        "properties.nope",
    }
    assert dead.heard == []


@pytest.mark.parametrize("channel", ["reply", "event"])
async def test_bad_messages_of_other_channels_are_explained(device: Device, dead, channel: str):
    """An invalid report, event or reply is refused with its reason."""
    async with device.mqtt() as mqtt:
        await mqtt.send(channel, {"eventId": "nope", "commandId": "x", "status": "?"})
        assert (await dead.wait(f"dead.uplink.{device.sn}"))["reason"]
        await mqtt.report({"counter": 1})
    await device.stored({"counter": 1})


@pytest.mark.parametrize("channel", ["reports", "report/more"])
async def test_messages_on_unknown_topics_are_dropped(device: Device, dead, channel: str):
    """They are treated like topics of another SN; the device stays connected."""
    async with device.mqtt() as mqtt:
        await mqtt.send(channel, {"properties": {"counter": 2}})
        await mqtt.report({"counter": 1})
    await device.stored({"counter": 1})
    assert len(await device.history()) == 1
    assert dead.heard == []


async def test_good_and_bad_reports_of_many_devices_do_not_disturb_each_other(application, dead):
    """Every valid report is stored and every invalid one has its reason in `DEAD`."""
    devices = [await application.add_device() for _ in range(4)]
    for one in devices:
        async with one.mqtt() as mqtt:
            for number in range(20):
                await mqtt.send("report", list(BAD.values())[number % 10], 1)
                await mqtt.report({"counter": number})
    for one in devices:
        await one.stored({"counter": 19})
        await dead.wait(f"dead.uplink.{one.sn}")
        assert len(await one.history()) == 20


@pytest.mark.parametrize("what", ["report", "event", "reply"])
async def test_a_body_above_the_limit_is_413(device: Device, what: str):
    """A message may have 256 KiB over HTTP too."""
    status, body = await device.http("POST", what, b'{"x":"' + b"x" * 300_000 + b'"}')
    assert (status, body["status"]) in {(413, "Failed"), (400, "Failed")}
