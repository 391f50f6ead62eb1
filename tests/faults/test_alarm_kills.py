"""`kill -9` of ingest and of what decides alarms: each is raised and cleared exactly once."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.common.bus import EVENTS, UPLINK, Bus, OutgoingMessage
from libs.common.bus.subjects import uplink_subject
from libs.common.clock import now_ms
from libs.common.identity import generate_keys
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from services.device.alarms.model import Rule, ValueCondition, to_document
from services.device.migrations import MIGRATIONS
from services.device.telemetry.wiring import CONSUMER_NAME
from tests.faults.replica import Replica
from tests.servers import Servers

pytestmark = pytest.mark.slow

DEVICES, ROUNDS = 50, 20
"""1,000 transitions: each round, all devices go beyond the threshold, or back."""
DEATHS = 6


@dataclass
class World:
    """Two replicas of `device` and two of its ingest, and the devices."""

    replicas: list[Replica]
    bus: Bus
    mongo: Mongo

    async def report(self, value: float) -> list[int]:
        """Send a report of each device; wait until all are stored; return their times."""
        ts = await self.send_reports(value)
        await self.stored()
        return [ts] * DEVICES

    async def send_reports(self, value: float) -> int:
        """Send a report of each device, in any order; return their time."""
        ts = now_ms()
        body = msgspec.json.encode({"ts": ts, "properties": {"heat": value}})
        reports = [
            OutgoingMessage(uplink_subject(f"SN{one}", "report"), body)
            for one in range(1, DEVICES + 1)
        ]
        random.shuffle(reports)
        await self.bus.publish(reports)
        return ts

    async def stored(self) -> None:
        """Wait until all reports are stored; those of a dead ingest come 30 s later."""
        async with asyncio.timeout(120):
            while (await self.bus.js.stream_info(UPLINK)).state.messages:
                await asyncio.sleep(0.05)

    async def in_progress(self) -> int:
        """Return how many messages ingest has received and not acknowledged."""
        return (await self.bus.js.consumer_info(UPLINK, CONSUMER_NAME)).num_ack_pending or 0

    async def times(self) -> list[tuple[int, int]]:
        """Return when alarms were raised and cleared."""
        return sorted(
            (alarm["raisedAt"], alarm.get("clearedAt") or 0) for alarm in await self.alarms()
        )

    async def alarms(self) -> list[dict[str, Any]]:
        """Return all alarms, in order."""
        return await self.mongo.database["alarms"].find({}).to_list(None)

    async def published(self) -> list[tuple[str, int]]:
        """Return the changes of alarms on the bus, without copies."""
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
    """Start the replicas, and create a rule of a product with devices."""
    environment = {
        "THINGWAY_MONGO_URL": servers.mongo_url,
        "THINGWAY_MONGO_DATABASE": database,
        "THINGWAY_NATS_URL": servers.nats_url,
        "THINGWAY_INTERNAL_PUBLIC_KEY": generate_keys()[1],
    }
    services = ("device", "device.ingest_main", "device", "device.ingest_main")
    replicas = [
        Replica(service, environment, tmp_path / f"{number}.log")
        for number, service in enumerate(services)
    ]
    bus = await Bus.connect(servers.nats_url, name="others", stream_replicas=1)
    for stream in (UPLINK, EVENTS):  # the replicas of another test died with some in hand
        await bus.js.purge_stream(stream)
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
    await mongo.database["alarm_rules"].insert_one(to_document(rule))
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
    """While one replica after the other is killed in the middle of 1,000 transitions."""
    expected: list[tuple[int, int]] = []

    async def die() -> None:
        for number in range(DEATHS):
            known = len(await world.alarms())
            async with asyncio.timeout(120):
                while len(await world.alarms()) <= known:
                    await asyncio.sleep(0.01)
            replica = world.replicas[number % len(world.replicas)]
            replica.kill()
            await replica.start()

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
            if len(alarms) >= len(expected) and not any(alarm["open"] for alarm in alarms):
                break
            await asyncio.sleep(0.5)
    assert sorted((alarm["raisedAt"], alarm["clearedAt"]) for alarm in alarms) == sorted(expected)
    each = {alarm["_id"] for alarm in alarms}
    async with asyncio.timeout(60):
        while await world.mongo.database["outbox"].find_one({}) is not None:
            await asyncio.sleep(0.2)
    published = sorted(await world.published())
    assert published == sorted((what, one) for one in each for what in ("raised", "cleared"))


async def test_reports_of_a_killed_ingest_are_decided_in_their_order(world: World) -> None:
    """Later reports that another replica stores meanwhile wait for them."""
    _, dead, _, other = world.replicas
    other.kill()
    assert dead.process is not None
    pairs: list[tuple[int, int]] = []

    async def up_and_down() -> None:
        pairs.append((await world.send_reports(300.0), await world.send_reports(100.0)))

    async with asyncio.timeout(60):
        while True:
            await up_and_down()
            if await world.in_progress():
                dead.process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(0.5)  # its last messages have arrived
                if await world.in_progress():
                    break
                dead.process.send_signal(signal.SIGCONT)
    dead.kill()
    await other.start()
    for _ in range(3):
        await up_and_down()
    await world.stored()
    expected = sorted(pairs * DEVICES)
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while await world.times() != expected:
                await asyncio.sleep(0.5)
    assert await world.times() == expected
