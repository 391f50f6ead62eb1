"""`kill -9` of replicas that judge alarms: each is raised and cleared exactly once."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.common.bus import EVENTS, Bus, Outgoing
from libs.common.bus.subjects import device_event
from libs.common.clock import now_ms
from libs.common.contracts.events import DeviceProfile, PropertiesReported
from libs.common.identity import make_keys
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from services.device.alarms.model import Rule, ValueCondition, written
from services.device.migrations import MIGRATIONS
from services.device.reports.history.partitions import Partitions, history_key, partition_of
from tests.faults.replica import Replica
from tests.servers import Servers

pytestmark = pytest.mark.slow

DEVICES, ROUNDS = 50, 20
"""1,000 transitions: each round, all devices go beyond the threshold, or back."""
DEATHS = 6


@dataclass
class World:
    """Two replicas, and what ingest would say."""

    replicas: list[Replica]
    bus: Bus
    mongo: Mongo
    sequence: int = 0

    async def report(self, value: float) -> list[int]:
        """A report of each device, stored first and said then, in any order; their times."""
        ts, events = now_ms(), []
        partitions = Partitions(self.mongo.database)
        await partitions.ensure([partition_of(ts)])
        rows = []
        for device in range(1, DEVICES + 1):
            self.sequence += 1
            key = history_key(device, ts, self.sequence)
            rows.append({"_id": key, "p": {"heat": value}})
            body = PropertiesReported(
                event_id=f"r-{ts:x}-{self.sequence:x}",
                created_at=ts,
                tenant="default",
                device=DeviceProfile(device_id=device, sn=f"SN{device}", model="OVEN"),
                ts=ts,
                properties={"heat": value},
            )
            subject = device_event("default", device, "reported")
            events.append(Outgoing(subject, msgspec.json.encode(body)))
        await partitions.collection(partition_of(ts)).insert_many(rows)
        random.shuffle(events)
        await self.bus.publish(events)
        return [ts] * DEVICES

    async def alarms(self) -> list[dict[str, Any]]:
        """All alarms, in order."""
        return await self.mongo.database["alarms"].find({}).to_list(None)

    async def said(self) -> list[tuple[str, int]]:
        """The changes of alarms that the bus was told, each copy."""
        info = await self.bus.js.stream_info(EVENTS)
        found = []
        for sequence in range(info.state.first_seq, info.state.last_seq + 1):
            message = await self.bus.js.get_msg(EVENTS, sequence)
            if ".alarm." in str(message.subject):
                body = msgspec.json.decode(message.data or b"")
                found.append((body["eventId"], body["change"], body["alarmId"]))
        return [(change, alarm) for _, change, alarm in dict.fromkeys(found)]


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    """Two replicas on the servers of the tests, and a rule of a product with devices."""
    environment = {
        "THINGWAY_MONGO_URL": servers.mongo_url,
        "THINGWAY_MONGO_DATABASE": database,
        "THINGWAY_NATS_URL": servers.nats_url,
        "THINGWAY_INTERNAL_PUBLIC_KEY": make_keys()[1],
    }
    replicas = [Replica("device", environment, tmp_path / f"{one}.log") for one in range(2)]
    bus = await Bus.connect(servers.nats_url, name="others", streams=1)
    mongo = Mongo(servers.mongo_url, database)
    await migrate(mongo.database, MIGRATIONS)
    now = datetime.now(UTC)
    await mongo.database["devices"].insert_many(
        {
            "_id": device,
            "sn": f"SN{device}",
            "snKey": f"SN{device}",
            "tenant": "default",
            "model": "OVEN",
            "tslVersion": "v1.0",
            "name": f"oven {device}",
            "application": None,
            "connectStatus": "DISCONNECT",
            "createdAt": now,
            "updatedAt": now,
        }
        for device in range(1, DEVICES + 1)
    )
    rule = Rule(
        id=1,
        tenant="default",
        name="hot",
        severity="MAJOR",
        product="OVEN",
        condition=ValueCondition(property="heat", comparison="GT", threshold=200),
        created_at=now_ms(),
        updated_at=now_ms(),
        changed=now_ms(),
    )
    await mongo.database["alarm_rules"].insert_one(written(rule))
    try:
        for replica in replicas:
            await replica.start()
        yield World(replicas, bus, mongo)
    finally:
        for replica in replicas:
            replica.kill()
        await bus.drain()
        await mongo.close()


async def test_each_alarm_is_raised_and_cleared_once(world: World) -> None:
    """While one replica or the other is killed in the middle of 1,000 transitions."""
    expected: list[tuple[int, int]] = []

    async def die() -> None:
        for number in range(DEATHS):
            known = len(await world.alarms())
            async with asyncio.timeout(120):
                while len(await world.alarms()) <= known:
                    await asyncio.sleep(0.01)
            world.replicas[number % 2].kill()
            await world.replicas[number % 2].start()

    dying = asyncio.ensure_future(die())
    rounds = 0
    raised: list[int] = []
    while rounds < ROUNDS or not dying.done():
        hot = rounds % 2 == 0
        times = await world.report(300.0 if hot else 100.0)
        if hot:
            raised = times
        else:
            expected += [(first, last) for first, last in zip(raised, times, strict=True)]
        rounds += 1
        await asyncio.sleep(0.2)
    await dying
    if rounds % 2:
        times = await world.report(100.0)
        expected += [(first, last) for first, last in zip(raised, times, strict=True)]
    async with asyncio.timeout(180):
        while True:
            alarms = await world.alarms()
            if len(alarms) >= len(expected) and not any(one["open"] for one in alarms):
                break
            await asyncio.sleep(0.5)
    assert sorted((one["raisedAt"], one["clearedAt"]) for one in alarms) == sorted(expected)
    each = {one["_id"] for one in alarms}
    async with asyncio.timeout(60):
        while await world.mongo.database["outbox"].find_one({}) is not None:
            await asyncio.sleep(0.2)
    said = sorted(await world.said())
    assert said == sorted((what, one) for one in each for what in ("raised", "cleared"))
