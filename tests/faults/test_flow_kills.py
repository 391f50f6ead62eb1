"""`kill -9` of replicas of `workflow` under load: no event and no timer is lost or runs twice."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from libs.common.bus import Bus
from libs.common.clock import now_ms
from libs.common.identity import HeaderSigner, Principal, PrincipalKind, generate_keys
from libs.common.store.mongo import Mongo
from tests.console import Grants, User
from tests.faults.replica import Replica
from tests.integration.workflow.conftest import PlayedDevice
from tests.integration.workflow.designs import design, edge, node
from tests.integration.workflow.triggers.world import device, enabled, listener, reported, timer
from tests.servers import Servers

BATCH, PAUSE = 10, 0.1
"""Events that are published at a time, and seconds between."""
TIMERS = 40
TARGETS = ("direct.device.SN1.alarm", "system.integration.heat")
"""Flows that set a device are recorded before they start; quick flows only at their end."""


@dataclass
class World:
    """Two replicas, and a user of the first."""

    replicas: list[Replica]
    bus: Bus
    mongo: Mongo
    user: User
    played: PlayedDevice

    async def runs(self) -> list[dict[str, Any]]:
        """Return all recorded runs."""
        return await self.mongo.database["runs"].find({}).to_list(None)


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    """Two replicas on the servers of the tests; `auth` and `device` are played."""
    private, public = generate_keys()
    environment = {
        "THINGWAY_MONGO_URL": servers.mongo_url,
        "THINGWAY_MONGO_DATABASE": database,
        "THINGWAY_NATS_URL": servers.nats_url,
        "THINGWAY_INTERNAL_PUBLIC_KEY": public,
        "THINGWAY_SECRETS_KEY": public,
    }
    replicas = [
        Replica("workflow", environment, tmp_path / f"replica-{one}.log") for one in range(2)
    ]
    bus = await Bus.connect(servers.nats_url, name="others", stream_replicas=1)
    mongo = Mongo(servers.mongo_url, database)
    played = PlayedDevice(bus)
    for target in TARGETS:
        played.has(target)
    await played.start()
    try:
        await replicas[0].start()
        await replicas[1].start()
        principal = Principal(
            kind=PrincipalKind.USER, tenant="default", subject="1", name="u", super_admin=True
        )
        url = f"http://127.0.0.1:{replicas[0].port}"
        async with Grants(bus) as grants, httpx.AsyncClient(base_url=url, timeout=30) as http:
            user = User(http, HeaderSigner(private), principal, grants)
            yield World(replicas, bus, mongo, user, played)
    finally:
        for replica in replicas:
            replica.kill()
        await played.stop()
        await bus.drain()
        await mongo.close()


@asynccontextmanager
async def load(world: World, key: str) -> AsyncIterator[list[str]]:
    """Publish events as long as the block runs; their ids."""
    ids: list[str] = []
    over = asyncio.Event()

    async def publish() -> None:
        while not over.is_set():
            events = [
                (f"r-{now_ms():x}-{len(ids) + number:x}", len(ids) + number)
                for number in range(BATCH)
            ]
            await world.bus.publish([reported(key, one, t=value) for one, value in events])
            ids.extend(one for one, _ in events)
            await asyncio.sleep(PAUSE)

    task = asyncio.ensure_future(publish())
    try:
        yield ids
        assert not task.done()
    finally:
        over.set()  # a cancelled one could have published what it has not noted
        await task


async def check(world: World, flows: list[int], ids: list[str], timers: dict[int, int]) -> None:
    """Check that each timer, and each event and flow, has exactly one successful run."""
    expected = {(flow_id, f"e-{one}") for flow_id in flows for one in ids}
    expected |= {(flow_id, f"t-{due * 1000}") for flow_id, due in timers.items()}
    async with asyncio.timeout(120):
        while True:
            runs = await world.runs()
            if len(runs) >= len(expected) and all(run["status"] != "RUNNING" for run in runs):
                break
            await asyncio.sleep(0.5)
    assert sorted((run["flow"], run["key"]) for run in runs) == sorted(expected)
    assert {run["status"] for run in runs} == {"SUCCESS"}


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [2, 10], ids=["twice", "ten-times"])
async def test_killed_replicas_lose_no_event_and_no_timer(world: World, deaths: int):
    """One of two replicas is killed repeatedly, soon after each restart."""
    key = device()
    value = f"#{{properties.start['{key}.t']}}"
    flows = []
    for target in TARGETS:
        assign = node("set", "entityAssigner", exchangePayload={target: value})
        text = design([listener(f"{key}.t"), assign], edge("start", "set"))
        flows.append(await enabled(world.user, text))
    begin, timers = int(time.time()) + 15, {}
    for number in range(TIMERS):
        due = begin + number * deaths * 3 // TIMERS
        text = design([timer(type="ONCE", executionEpochSecond=due)])
        timers[await enabled(world.user, text)] = due
    assert time.time() < begin
    async with load(world, key) as ids:
        for number in range(deaths):
            replica = world.replicas[number % 2]
            replica.kill()
            await replica.start()
            known = len(await world.runs())
            async with asyncio.timeout(60):
                while len(await world.runs()) < known + BATCH:
                    await asyncio.sleep(0.1)
    await check(world, flows, ids, timers)
