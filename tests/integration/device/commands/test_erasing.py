"""Removal of stored values after an import made their property write-only."""

import copy
import time
from typing import Any

import msgspec
import pytest
from bson import Binary

from libs.common.bus import OutgoingMessage
from libs.common.bus.subjects import alarm_event, dead_uplink_subject, device_event
from libs.common.contracts.limits import Limits
from libs.common.limits.tenants import LimitsCache
from libs.common.tsl import parse_document
from services.device.alarms.rules import RuleStore
from services.device.alarms.service import AlarmValueEraser
from services.device.alarms.store import AlarmStore
from services.device.lorawan.frame_store import FrameStore
from services.device.lorawan.redecode_service import RedecodeStore
from services.device.migrations import _repeat_erasure
from services.device.registry.products.write_only_eraser import WriteOnlyEraser
from services.device.telemetry.partitions import (
    PARTITION_MS,
    Partitions,
    history_key,
    partition_number,
)
from services.device.things.specifications import TslStore
from tests.integration.device.commands.test_replies import command, everything, state
from tests.integration.device.telemetry.world import TSL, World

NOW = int(time.time() * 1000)
SECRET = 86_429_753


def eraser(world: World) -> WriteOnlyEraser:
    return WriteOnlyEraser(
        bus=world.bus,
        devices=world.first.devices,
        thing_store=world.first.things.store,
        tsls=TslStore(world.database),
        partitions=Partitions(world.database),
        frames=FrameStore(world.mongo),
        latest=world.latest,
        commands=world.commands,
        redecodes=RedecodeStore(world.database, world.commands.wakeups),
        alarms=AlarmValueEraser(
            AlarmStore(world.mongo, world.outbox, world.first.devices, world.commands.wakeups),
            RuleStore(world.database, LimitsCache(None, Limits()), world.commands.wakeups),
        ),
    )


async def erase(world: World) -> None:
    """Erase pending values of all tenants."""
    one = eraser(world)
    for tenant in await one.list_tenants():
        async for _ in one.erase_values_of_tenant(tenant):
            pass


async def make_write_only(world: World, *keys: str) -> None:
    """Import the TSL again with other access modes."""
    document = copy.deepcopy(TSL)
    for entry in document["properties"]:
        if entry["id"] in keys:
            entry["accessMode"] = "W"
    content = {
        "hash": f"h-{'-'.join(keys)}",
        "document": msgspec.json.encode(parse_document(document)),
    }
    await world.database["tsls"].replace_one({"_id.model": "m"}, content)


async def write_history(world: World, ts: int, properties: dict[str, Any]) -> bytes:
    partitions = Partitions(world.database)
    await partitions.ensure([partition_number(ts)])
    key = history_key(7, ts, 1)
    row = {"_id": key, "p": properties}
    await partitions.collection(partition_number(ts)).insert_one(row)
    return key


@pytest.fixture
async def stored(world: World) -> World:
    """Return a device whose secrets were stored while its property was readable."""
    await world.add(7)
    both = {"interval": SECRET, "temperature": 21.5, "limits": {"low": SECRET, "high": 2}}
    key = await write_history(world, NOW, both)
    await write_history(world, NOW - PARTITION_MS, {"interval": SECRET})
    frame = {"_id": key, "i": b"x", "f": b'{"data":"%d"}' % SECRET, "c": "1/v1.0"}
    await world.database["frames"].insert_one(frame)
    await world.latest.apply([(7, NOW, both)])
    payload = {"properties": {"interval": SECRET}}
    ended = {"payload": payload, "error": f"refused {SECRET}", "status": "FAILED"}
    await world.write([command(5, payload=payload), command(6, **ended)])
    await world.database["commands"].update_one(
        {"_id": 6},
        {"$set": {"error": f"no {SECRET}", "downlinks": [{"port": 1, "data": Binary(b"x")}]}},
    )
    await world.database["profiles"].insert_one(
        {"_id": 7, "values": [{"key": "interval", "value": SECRET}, {"key": "mode", "value": 1}]}
    )
    reported = msgspec.json.encode({"properties": both})
    dead = {
        "reason": "x", "subject": "thing.SN7.up.report", "sequence": 1, "receivedAt": 1,
        "payload": reported.decode(),
    }  # fmt: skip
    await world.bus.publish(
        [
            OutgoingMessage(device_event("default", 7, "reported"), reported),
            OutgoingMessage(dead_uplink_subject("SN7"), msgspec.json.encode(dead)),
        ]
    )
    await _raise_alarms(world)
    difference = {"device": 7, "ts": NOW, "before": {"interval": SECRET}}
    job = {"_id": {"tenant": "default", "model": "m"}, "differences": [difference]}
    await world.database["redecodes"].insert_one(job)
    return world


async def _raise_alarms(world: World) -> None:
    """Raise alarms by three rules, the last of which has changed since."""
    database = world.database
    for rule, path, generation in ((1, "interval", 1), (2, "temperature", 1), (3, "humidity", 2)):
        condition = {"type": "VALUE", "property": path, "comparison": "GT", "threshold": 1}
        await database["alarm_rules"].insert_one(
            {
                "_id": rule, "tenant": "default", "name": "r", "severity": "MAJOR", "device": 7,
                "condition": condition, "generation": generation,
                "createdAt": 1, "updatedAt": 1, "changed": 1,
            }
        )  # fmt: skip
        value = 21.5 if path == "temperature" else SECRET
        raised = {"device": 7, "rule": rule, "value": value}
        await database["alarms"].insert_one({"_id": rule, "state": f"{rule}.1.7"} | raised)
        await database["alarm_states"].insert_one({"_id": f"{rule}.1.7"} | raised)
    event = {"alarmId": 1, "value": SECRET}
    await world.bus.publish(
        [OutgoingMessage(alarm_event("default", 7, "raised"), msgspec.json.encode(event))]
    )


async def test_alarm_values_stay_while_their_rule_watches_a_readable_property(stored: World):
    """The property of a changed rule is unknown, so its values are removed."""
    await make_write_only(stored, "interval")

    await erase(stored)

    for name in ("alarms", "alarm_states"):
        rows = await stored.database[name].find({"device": 7}).to_list(None)
        assert [row["rule"] for row in rows if "value" in row] == [2]


async def test_values_that_became_write_only_are_removed_from_the_stores(stored: World):
    """Readable values and undelivered commands stay."""
    await make_write_only(stored, "interval", "limits.low")

    await erase(stored)

    found = await everything(stored)
    pending = await state(stored, 5)
    assert pending.to_wire()["properties"] == {"interval": SECRET}
    assert found.count(str(SECRET)) == 1  # of the open command
    readable = {"temperature": 21.5, "limits": {"high": 2}}
    assert [row["p"] for row in await stored.stored()] == [readable]
    assert await stored.latest_of(7) == readable
    assert await stored.commands.find_profile(7) == {"mode": 1}
    assert (await state(stored, 6)).error == "******"
    frame = await stored.database["frames"].find_one({})
    assert "f" not in frame


async def test_a_thing_is_erased_once_per_version_of_its_tsl(stored: World):
    await make_write_only(stored, "interval")
    await erase(stored)
    await stored.latest.apply([(7, NOW + 1, {"interval": SECRET})])

    await erase(stored)
    assert "interval" in await stored.latest_of(7)

    await make_write_only(stored, "interval", "limits.low")
    await erase(stored)
    assert "interval" not in await stored.latest_of(7)


async def test_values_stored_by_old_processes_are_removed_later(stored: World):
    await make_write_only(stored, "interval")
    await erase(stored)
    await stored.latest.apply([(7, NOW + 1, {"interval": SECRET})])

    await _repeat_erasure(stored.database)
    await erase(stored)

    assert "interval" not in await stored.latest_of(7)
