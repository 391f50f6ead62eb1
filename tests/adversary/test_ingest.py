"""What was found where reports are stored: each hole as somebody used it."""

import asyncio
import json
from typing import Any

import pytest

from tests.adversary.logins import Login
from tests.adversary.mqtt_wire import Connect, MqttWire, Publish
from tests.adversary.nats_wire import NatsWire, Publication
from tests.adversary.oracle import Oracle
from tests.adversary.records import connect_mongo
from tests.e2e.devices import Device
from tests.e2e.waiting import PATIENCE, until

pytestmark = pytest.mark.xdist_group("platform")

LARGE = 248 * 1024
"""Bytes of a report that is just small enough."""
LONG_KEY = "\x01" * 127
"""A key of which each character takes six bytes in JSON."""
LEVELS = 14


async def open_device(oracle: Oracle) -> Device:
    """Return Mallory's device of the product `generic`, which accepts any values."""
    application = oracle.town.mallory.application
    device = await application.add_device(model="generic")
    oracle.town.mallory.passing.append(device)
    return device


def faulty() -> dict[str, Any]:
    """Return a report of 12 KB with a hundred faults, each with a long path."""
    properties: dict[str, Any] = {f"${number}": 1 for number in range(100)}
    for _ in range(LEVELS):
        properties = {LONG_KEY: properties}
    return {"properties": properties | {"counter": 1}}


async def flood(oracle: Oracle, device: Device, report: bytes, number: int) -> None:
    """Send reports of QoS 0 as fast as the server reads, on a new connection when it closes one."""
    town, sent = oracle.town, 0
    login = Login(device.sn, device.key)
    said = Publish(f"thing/{device.sn}/up/report", report).frame(town)
    for _ in range(20):
        async with MqttWire(town.mallory.platform.mqtt_port) as wire:
            if not await wire.log_in(Connect(device.sn).frame(town, login)):
                return
            while wire.open and sent < number:
                await wire.send(said)
                sent += 1
            if wire.open:
                await wire.say(b"")
                return


async def test_faults_with_long_paths_stop_nobody(oracle: Oracle) -> None:
    """The error message about a report is cut to the size limit of the bus."""
    device = await open_device(oracle)
    report = json.dumps(faulty()).encode()
    assert len(report) < 16 * 1024
    async with device.mqtt(identifier=device.sn) as mqtt:
        for _ in range(25):
            await mqtt.send("report", report)
        await oracle.judge()


@pytest.mark.parametrize("number", [60, pytest.param(3_500, marks=pytest.mark.slow)])
async def test_large_reports_hold_up_nobody(oracle: Oracle, number: int) -> None:
    """Hundreds of megabytes of one device, and the others' reports are stored all the same."""
    device = await open_device(oracle)
    properties = {f"text{n}": "x" * 60_000 for n in range(4)}
    await flood(oracle, device, json.dumps({"properties": properties}).encode(), number)
    await oracle.judge()


@pytest.mark.parametrize("number", [2_000, pytest.param(200_000, marks=pytest.mark.slow)])
async def test_many_reports_hold_up_nobody(oracle: Oracle, number: int) -> None:
    """Nor do many small ones, nor those that are refused one and all."""
    device = await oracle.town.mallory.add_device()
    await flood(oracle, device, b'{"properties":{"counter":1}}', number)
    await flood(oracle, device, b"nonsense", number // 5)
    await oracle.judge()


async def test_invented_paths_are_bounded(oracle: Oracle) -> None:
    """A hundred reports that each invent a few paths leave less than 64 KiB of shapes."""
    device = await open_device(oracle)
    with connect_mongo(oracle.town.mallory.platform) as mongo:

        def size() -> int:
            return int(mongo.thingway_device.command("collStats", "shapes")["size"])

        before = size()
        for number in range(100):
            report = {"properties": {f"{number}-{n}": {"x": n} for n in range(10)}}
            status, body = await device.http("POST", "report", report, wait="stored")
            assert status in {202, 429}, body

        async def bounded() -> bool:
            return size() - before < 64 * 1024

        await until(bounded)
    await oracle.judge()


@pytest.mark.parametrize("number", [5_000, pytest.param(2_000_000, marks=pytest.mark.slow)])
async def test_a_flood_on_nats_stops_nobody(oracle: Oracle, number: int) -> None:
    """While a device publishes as fast as the server reads, another's reports are acknowledged."""
    town = oracle.town
    device = await town.mallory.add_device()
    said = Publication(f"thing.{device.sn}.up.report", "", (), "x").frame(town)

    async def flood_it() -> None:
        sent = 0
        while sent < number:
            async with NatsWire(town.mallory.platform.nats_port) as wire:
                if not await wire.log_in(Login(device.sn, device.key)):
                    return
                while wire.open and sent < number:
                    await wire.send(said * 1_000)
                    sent += 1_000
                await wire.say(b"")

    async with town.alice.device.nats() as client:
        flooding = asyncio.create_task(flood_it())
        subject = f"thing.{town.alice.device.sn}.up.report"
        for counter in range(20):
            body = json.dumps({"properties": {"counter": counter}}).encode()
            answer = await client.request(subject, body, timeout=PATIENCE)
            assert b'"error"' not in answer.data, answer.data
        await flooding
    await oracle.settle()
