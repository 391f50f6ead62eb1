"""The simulator: virtual devices that report within their TSL and obey; `device` is played."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.bus import Bus
from libs.common.contracts.integrations import AddDevice, DeviceRef, NewDevice
from libs.common.errors import InvalidInput
from libs.common.identity import generate_keys
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.store.redis import connect_redis
from libs.common.telemetry import Telemetry
from libs.common.tsl import compile_tsl, parse_document
from services.management.app import build_app
from services.management.migrations import MIGRATIONS
from services.management.settings import ManagementSettings
from tests.integration.management.conftest import Management
from tests.integration.management.played import PlayedDevice, playing
from tests.lending import lent
from tests.lifespan import running
from tests.servers import Servers

TSL: dict[str, Any] = {
    "version": "v1.0",
    "properties": [
        {
            "id": "level",
            "accessMode": "R",
            "dataSpec": {"dataType": "INT", "validator": {"min": 3, "max": 9}},
        },
        {
            "id": "mode",
            "accessMode": "RW",
            "dataSpec": {"dataType": "ENUM", "mapping": {"0": "a", "1": "b"}},
        },
    ],
    "events": [],
    "services": [{"id": "weigh", "callType": "SYNC", "inputs": [], "outputs": []}],
}
OTHER = {**TSL, "properties": [*TSL["properties"], {**TSL["properties"][0], "id": "depth"}]}


@pytest_asyncio.fixture
async def played(management: Management, servers) -> AsyncIterator[PlayedDevice]:
    async with playing(servers.nats_url, "simulator") as device:
        device.tsls["TANK-1"] = TSL
        await device.ready()
        yield device


async def test_a_device_reports_within_its_tsl(played: PlayedDevice):
    """At its interval, each value within its bounds, as soon as it is added."""
    device = await played.add({"model": "TANK-1", "interval": 1})
    assert device.identifier.startswith("SIM")
    reports = await played.until(lambda: played.reports_of(device.identifier)[1:])
    tsl = compile_tsl(parse_document(TSL))
    for properties in reports:
        assert set(properties) == {"level", "mode"}
        assert tsl.check_report(properties) == (properties, [])


async def test_it_obeys_and_answers_once(played: PlayedDevice):
    """A command sets, is answered and reported; a copy is answered again and changes nothing."""
    device = await played.add({"model": "TANK-1", "interval": 86_400})
    command = {"commandId": 5, "kind": "SET_PROPERTIES", "properties": {"mode": "1"}}
    await played.command(device, command)
    await played.command(device, command)
    assert [(reply.command_id, reply.status) for reply in played.replies] == [(5, "SUCCESS")] * 2
    assert played.reports_of(device.identifier) == [{"mode": "1"}]

    await played.command(device, {"commandId": 6, "kind": "CALL_SERVICE", "serviceId": "fly"})
    assert (played.replies[-1].status, played.replies[-1].error) == ("FAILED", "no service fly")


async def test_settings_survive_another_tsl(played: PlayedDevice):
    """A device that hears of a change reports by its new TSL and keeps what was set."""
    device = await played.add({"model": "TANK-1", "interval": 1})
    set_mode = {"commandId": 5, "kind": "SET_PROPERTIES", "properties": {"mode": "1"}}
    await played.command(device, set_mode)
    played.tsls["TANK-1"] = OTHER
    await played.tell(device, "updated")
    newest = await played.until(
        lambda: [one for one in played.reports_of(device.identifier) if "depth" in one]
    )
    assert newest[0]["mode"] == "1"


async def test_a_deleted_device_falls_silent(played: PlayedDevice):
    """At once; others go on."""
    gone = await played.add({"model": "TANK-1", "interval": 1})
    stays = await played.add({"model": "TANK-1", "interval": 1})
    await played.until(lambda: played.reports_of(gone.identifier))
    await played.delete(gone)
    told = len(played.reports_of(gone.identifier))
    already = len(played.reports_of(stays.identifier))
    await played.until(lambda: len(played.reports_of(stays.identifier)) >= already + 2)
    assert len(played.reports_of(gone.identifier)) <= told + 1  # one may be on its way


async def test_generic_has_nothing_to_simulate(played: PlayedDevice):
    """Its TSL is open; the refusal names the parameter."""
    wanted = AddDevice(tenant="default", user_id=1, name="x", params={"model": "generic"})
    with pytest.raises(InvalidInput, match="model"):
        await played.ask("add_device", wanted, NewDevice)


@asynccontextmanager
async def replica(servers: Servers, database: str, name: str) -> AsyncIterator[None]:
    """One more `management` on the same database."""
    mongo = Mongo(servers.mongo_url, database)
    redis = connect_redis(servers.redis_url)
    bus = await Bus.connect(servers.nats_url, name=name, stream_replicas=1)
    await migrate(mongo.database, MIGRATIONS)
    key = generate_keys()[1]
    settings = ManagementSettings(internal_public_key=key, secrets_key=key)
    telemetry = Telemetry(None, MeterProvider())
    with lent(lambda: build_app(settings, mongo, redis, bus, telemetry)) as app:
        async with running(app):
            yield
    await bus.drain()
    await redis.aclose()
    await mongo.close()


async def test_another_replica_takes_over(servers, database):
    """One of two replicas simulates; when it ends, the other finds the devices and goes on."""
    async with playing(servers.nats_url, "simulator") as played:
        played.tsls["TANK-1"] = TSL
        played.devices[1] = DeviceRef(
            tenant="default",
            device_id=1,
            identifier="SIM1",
            model="TANK-1",
            additional={"interval": 1},
        )
        first, second = AsyncExitStack(), AsyncExitStack()
        await first.enter_async_context(replica(servers, database, "first"))
        await played.until(lambda: len(played.reports) > 1)
        await second.enter_async_context(replica(servers, database, "second"))
        asked = played.tsls_asked
        told = len(played.reports)
        await played.until(lambda: len(played.reports) > told + 1)
        assert played.tsls_asked == asked == 1
        await first.aclose()
        told = len(played.reports)
        await played.until(lambda: len(played.reports) > told + 1)
        assert played.tsls_asked == 2
        await second.aclose()


async def test_a_thousand_devices_ask_little(played: PlayedDevice):
    """One TSL is kept for all of a kind, and each reports in its turn."""
    for number in range(1, 1001):
        ref = DeviceRef(
            tenant="default",
            device_id=number,
            identifier=f"SIM{number}",
            model="TANK-1",
            additional={"interval": 2},
        )
        played.devices[number] = ref
    await played.tell(played.devices[1], "added")
    await played.until(lambda: len({report.identifier for report in played.reports}) == 1000)
    assert played.tsls_asked == 1000
