"""`kill -9` of processes under load: what was acknowledged is stored once, and all goes on."""

import asyncio
import subprocess
import sys

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import ExecutionTimeout

from deploy.platform.services import database_users
from tests.e2e.callers import Application
from tests.e2e.listening import Listener
from tests.e2e.platform import Platform
from tests.e2e.waiting import until
from tests.faults.load import Load, settled

pytestmark = pytest.mark.xdist_group("platform")

TIMES = 10
HALF_DONE = """
import sys, time, pymongo
url, device = sys.argv[1], int(sys.argv[2])
with pymongo.MongoClient(url) as client, client.start_session() as session:
    session.start_transaction()
    devices = client.get_default_database()["devices"]
    devices.update_one({"_id": device}, {"$set": {"connectStatus": "OFFLINE"}}, session=session)
    print("written", flush=True)
    time.sleep(600)
"""
"""What `device` does when a device goes, up to the moment before it commits."""


@pytest.fixture
async def before(platform: Platform, application: Application) -> dict[str, int]:
    """Return the counts before the test."""
    device = await application.add_device()
    await device.http("POST", "report", {"properties": {"counter": 0}}, wait="stored")
    return await settled(platform)


@pytest.fixture
def load(platform: Platform, application: Application) -> Load:
    """Return a load that is not running yet."""
    return Load(platform, application)


async def _stores_again(platform: Platform) -> None:
    """Wait until ingest has stored something more."""
    start = await platform.metrics()

    async def more() -> bool:
        return (await platform.metrics())["stored"] > max(1, start["stored"])

    await until(more, 30)


async def test_killed_ingest_and_device_lose_nothing(platform: Platform, load: Load, before):
    """Both processes of the device service die under load at the same moment."""
    async with load.running(2):
        pids = {name: await platform.kill(name) for name in ("device-ingest", "device")}
        for name, pid in pids.items():
            await platform.restarted(name, pid)
    await load.check(before)


async def test_an_abandoned_transaction_delays_reports_for_seconds_only(
    platform: Platform, application: Application, events: Listener
):
    """MongoDB ends an abandoned transaction well before its usual minute.

    Meanwhile HTTP reports of the device whose record it locks are accepted.
    """
    device = await application.add_device()
    users = database_users(platform.state)
    user = next(one for one in users if one.name == "device")
    url = user.url(*platform.state.member_addresses("mongod"))
    with subprocess.Popen(
        [sys.executable, "-c", HALF_DONE, url, str(device.id)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"written\n"
        process.kill()
    status, _ = await device.http("POST", "report", {"properties": {"counter": 1}})
    assert status == 202
    async with AsyncMongoClient(url) as client:
        devices = client.get_default_database()["devices"]
        with pytest.raises(ExecutionTimeout):  # it is locked still
            await devices.find_one_and_update(
                {"_id": device.id}, {"$set": {"name": "x"}}, maxTimeMS=100
            )
    await events.wait(f"event.default.device.{device.id}.reported")


@pytest.mark.parametrize(
    "name", ["nats", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mongod", "redis"))]
)
async def test_a_killed_server_loses_nothing(platform: Platform, load: Load, before, name: str):
    """A server is killed under load and restarted; the services reconnect."""
    async with load.running():
        pid = await platform.kill(name)
        await platform.restarted(name, pid)
        await load.goes_on(60)
        await _stores_again(platform)
    await load.check(before)


async def test_a_killed_launcher_loses_nothing(platform: Platform, load: Load, before):
    """The launcher is killed under load, with all processes; the next start continues."""
    async with load.running(2):
        await platform.die()
        await asyncio.to_thread(platform.start)
    await load.check(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["device-ingest", "device"])
async def test_ten_deaths_of_a_service_lose_nothing(
    platform: Platform, load: Load, before, name: str
):
    """A service is killed ten times under load, soon after each restart."""
    async with load.running():
        for _ in range(TIMES):
            pid = await platform.kill(name)
            await platform.restarted(name, pid)
            await _stores_again(platform)
    await load.check(before)


@pytest.mark.slow
async def test_all_servers_die_again_and_again(platform: Platform, load: Load, before):
    """NATS, MongoDB and Redis are killed in turn under load, three times each."""
    async with load.running():
        for name in ("nats", "mongod", "redis") * 3:
            pid = await platform.kill(name)
            await platform.restarted(name, pid)
            await load.goes_on(60)
            await _stores_again(platform)
    await load.check(before)
