"""Values of access mode W: the device gets them, and nothing gives them to anybody else."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from deploy.backup.stores import DATABASES, Stores
from tests.e2e.callers import Application
from tests.e2e.devices import Device
from tests.e2e.platform import Platform
from tests.e2e.waiting import until

pytestmark = pytest.mark.xdist_group("platform")

PIN, KEY, ECHO = "s3cret-pin-2718", "s3cret-key-3141", "s3cret-echo-1618"
MODEL = "E2E-LOCK"


def _property(key: str, kind: str, access: str) -> dict[str, Any]:
    return {"id": key, "name": key, "accessMode": access, "dataSpec": {"dataType": kind}}


LOCK = {
    "name": "Lock",
    "snPrefixes": [],
    "tsl": {
        "version": "v1.0",
        "properties": [
            _property("battery", "INT", "R"),
            _property("vol", "FLOAT", "RW") | {"propertyKey": "volume"},
            _property("pin", "STRING", "W"),
            _property("wifi", "STRUCT", "RW"),
            _property("wifi.ssid", "STRING", "RW"),
            _property("wifi.key", "STRING", "W"),
        ],
        "events": [],
        "services": [],
    },
}
SET = {"volume": 5, "pin": PIN, "wifi": {"ssid": "home", "key": KEY}}


@pytest.fixture
async def lock(application: Application) -> Device:
    await application.data("PUT", f"/products/{MODEL}", LOCK)
    return await application.add_device(model=MODEL)


async def test_a_write_only_value_is_delivered_and_stored_nowhere(
    platform: Platform, application: Application, lock: Device
):
    """Neither MongoDB, NATS nor the logs contain it; `tests/contract` checks the APIs."""
    before = {name: last for name, _, last in await _streams(platform)}
    status, answer = await application.request(
        "PATCH", f"/devices/{lock.id}/properties", {"properties": SET}
    )
    assert (status, answer["data"]) == (
        200,
        {"properties": {"volume": 5.0, "wifi": {"ssid": "home"}}},
    )
    async with lock.mqtt(identifier="lock-session", clean=False) as mqtt:
        command = await mqtt.command()
        assert command["properties"] == {**SET, "volume": 5.0}
        await mqtt.answer(command)
        ended = await lock.ended(command["commandId"])
        assert (ended["status"], ended["subcommand"][-1]) == (
            "SUCCESS",
            {"key": "pin", "status": "SUCCESS"},
        )
    await _put_on_the_bus(lock)
    await lock.http("POST", "report", {"properties": {"pin": ECHO}})
    good = {"battery": 50, "pin": ECHO, "wifi": {"key": ECHO}}
    await lock.http("POST", "report", {"properties": good}, wait="stored")

    assert [one["properties"] for one in await lock.history()][-1] == {"battery": 50}

    async def wiped() -> bool:
        return not [place async for place in _stored(platform, before)]

    await until(wiped)


async def _put_on_the_bus(lock: Device) -> None:
    """Let a device that is not checked at the door report what must not be reported."""
    async with lock.nats() as client:
        for body in (b'{"properties": {"pin": "%s"}}', b'{"properties": {"pin": "%s"'):
            await client.publish(f"thing.{lock.sn}.up.report", body % ECHO.encode())
        await client.flush()


SECRETS = [one.encode() for one in (PIN, KEY, ECHO)]


def _is_secret(content: bytes | None) -> bool:
    return any(one in (content or b"") for one in SECRETS)


async def _streams(platform: Platform) -> list[tuple[str, int, int]]:
    """Return name, first and last sequence of each stream that keeps what services publish."""
    async with platform.admin() as bus:
        found = [(str(s.config.name), s.state) for s in await bus.jetstream().streams_info()]
    return [
        (name, state.first_seq, state.last_seq)
        for name, state in found
        if not name.startswith("UPLINK")
    ]


async def _stored(platform: Platform, before: dict[str, int]) -> AsyncIterator[str]:
    """Give each place in MongoDB, NATS and the logs that has one of the values.

    Messages up to the sequences in `before` are older than the values.
    """
    for log in (platform.directory / "logs").glob("*.log"):
        if _is_secret(log.read_bytes()):
            yield log.name
    async with Stores.from_launcher(
        platform.state, platform.addresses
    ).connect_mongo_reader() as client:
        for database in DATABASES:
            for name in await client[database].list_collection_names():
                if not name.startswith("system."):
                    async for batch in client[database][name].find_raw_batches():
                        if _is_secret(batch):
                            yield f"{database}.{name}"
    async with platform.admin() as bus:
        for name, first, last in await _streams(platform):
            async for place in _messages(bus, name, max(first, before.get(name, 0) + 1), last):
                yield place


async def _messages(bus: Client, name: str, sequence: int, last: int) -> AsyncIterator[str]:
    """Give the subject of each message of a stream that has one of the values."""
    while sequence <= last:
        try:
            message = await bus.jetstream().get_msg(name, sequence, ">", next=True)
        except NotFoundError:
            return
        sequence = (message.seq or last) + 1
        if _is_secret(message.data):
            yield f"{name} {message.subject}"
