"""Values of access mode W: the device gets them, and nothing gives them to anybody else."""

import re
from collections.abc import AsyncIterator
from typing import Any

import bson
import pytest
from nats.js.errors import NotFoundError

from deploy.backup.stores import DATABASES, Stores
from libs.common.things import device_key
from tests.e2e.callers import Application, Console
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
SENDING = ("POST", "GET")
HARMLESS = re.compile("search|aggregate|status|history|export|count|list|test$|check|statistic")


@pytest.fixture
async def lock(application: Application) -> Device:
    await application.data("PUT", f"/products/{MODEL}", LOCK)
    return await application.add_device(model=MODEL)


async def test_a_write_only_value_is_delivered_and_readable_nowhere(
    platform: Platform, application: Application, console: Console, lock: Device
):
    """Over the APIs, on the bus, and in the stores when its command is closed."""
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
        await _read_everything(platform, application, console, lock, [command["commandId"]])
        await mqtt.answer(command)
        ended = await lock.ended(command["commandId"])
        assert (ended["status"], ended["subcommand"][-1]) == (
            "SUCCESS",
            {"key": "pin", "status": "SUCCESS"},
        )
    good = {"battery": 50, "pin": ECHO, "wifi": {"key": ECHO}}
    await lock.http("POST", "report", {"properties": good}, wait="stored")
    await lock.http("POST", "report", {"properties": {"pin": ECHO}})
    await _put_on_the_bus(platform, lock)

    await _read_everything(platform, application, console, lock, [command["commandId"]])
    assert [one["properties"] for one in await lock.history()][-1] == {"battery": 50}

    async def wiped() -> bool:
        return not [place async for place in _stored(platform)]

    await until(wiped)


async def _put_on_the_bus(platform: Platform, lock: Device) -> None:
    """Let a device that is not checked at the door report what must not be reported."""
    async with lock.nats() as client:
        for body in (b'{"properties": {"pin": "%s"}}', b'{"properties": {"pin": "%s"'):
            await client.publish(f"thing.{lock.sn}.up.report", body % ECHO.encode())
        await client.flush()


async def _read_everything(
    platform: Platform,
    application: Application,
    console: Console,
    lock: Device,
    tasks: list[int],
) -> None:
    """Ask each operation that reads about this device and its entities."""
    await console.sign_in()
    key = device_key("direct", lock.sn)
    wanted = {"page_size": 50, "page_number": 1, "keyword": lock.sn}
    _, found = await console.request("POST", "/entity/search", wanted)
    entities = {row["entity_key"]: row["entity_id"] for row in found["data"]["content"]}
    assert f"{key}.pin" in entities or entities
    asked = 0
    async with platform.session() as session, session.get("/openapi.json") as answer:
        paths = (await answer.json())["paths"]
    for entity in [*entities.values()][:8]:
        names = {
            "device_id": lock.id, "deviceId": lock.id, "entity_id": entity, "task_id": tasks[0],
            "taskId": tasks[0], "model": MODEL, "sn": lock.sn,
        }  # fmt: skip
        body = {
            "entity_id": entity, "entity_ids": [entity], "aggregate_type": "LAST",
            "ids": [entity], "device_id": str(lock.id), "page_size": 50, "page_number": 1,
        }  # fmt: skip
        for path, operations in paths.items():
            parts = re.split(r"\{(\w+)[^}]*\}", path)
            parts[1::2] = [str(names.get(name, 1)) for name in parts[1::2]]
            place = "".join(parts)
            for method in SENDING:
                if method.lower() not in operations or place == "/websocket":
                    continue
                if method == "POST" and not HARMLESS.search(path):
                    continue
                asked += 1
                text = await _answer(platform, application, console, method, place, body)
                assert not any(one in text for one in (PIN, KEY, ECHO)), (method, path)
    assert asked > 100


async def _answer(
    platform: Platform,
    application: Application,
    console: Console,
    method: str,
    path: str,
    body: dict[str, Any],
) -> str:
    token = application.token if "/device/openapi/" in path else console.token
    query = {"ids": body["ids"][0], "startTime": "0"} if method == "GET" else {}
    async with (
        platform.session(headers={"Authorization": f"Bearer {token}"}) as session,
        session.request(
            method, path, json=body if method == "POST" else None, params=query
        ) as answer,
    ):
        return (await answer.read()).decode(errors="replace")


async def _stored(platform: Platform) -> AsyncIterator[str]:
    """Give each place in MongoDB and NATS that has one of the values."""
    secrets = [one.encode() for one in (PIN, KEY, ECHO)]
    async with Stores.local(platform.state, platform.addresses).reading() as client:
        for database in DATABASES:
            for name in await client[database].list_collection_names():
                if name.startswith("system."):
                    continue
                async for document in client[database][name].find():
                    if any(one in bson.encode(document) for one in secrets):
                        yield f"{database}.{name}"
    async with platform.admin() as bus:
        js = bus.jetstream()
        for stream in await js.streams_info():
            name = stream.config.name or ""
            if name.startswith("UPLINK") or not stream.state.messages:
                continue
            sequence = stream.state.first_seq
            while True:
                try:
                    message = await js.get_msg(name, sequence, ">", next=True)
                except NotFoundError:
                    break
                sequence = (message.seq or sequence) + 1
                if any(one in (message.data or b"") for one in secrets):
                    yield f"{name} {message.subject}"
