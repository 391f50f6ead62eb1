"""What is older than it may be, and what is left of things that are gone, goes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import json

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.clock import now_ms
from libs.common.contracts.limits import GetLimits, Limits, TenantLimits
from libs.common.identity import Principal, PrincipalKind
from libs.common.limits.tenants import LimitsCache
from libs.common.store.migrations import DAY_SECONDS, set_retention_days
from services.device.migrations import MIGRATIONS
from services.device.telemetry import retention as sweeps
from services.device.telemetry.history import HistoryService, HistoryStore
from services.device.telemetry.ledger import TOTALS_PAGE_ID, LedgerTotals
from services.device.telemetry.partitions import DAY_MS, Partitions, history_key, partition_number
from services.device.telemetry.retention import HistoryRowLimits, Retention, RetentionSweeper
from services.device.things.deleted_things import DeletedThings
from services.device.things.product_store import ProductStore
from services.device.things.specifications import TslStore
from tests.integration.device.telemetry.world import World
from tests.limits import limits_of

ME = Principal(PrincipalKind.APPLICATION, "default", "1")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing rests, and little is held at a time."""
    monkeypatch.setattr(sweeps, "PAUSE_RATIO", 0)
    monkeypatch.setattr(sweeps, "THINGS_PER_BATCH", 2)


def products(world: World) -> ProductStore:
    return ProductStore(world.mongo, world.first.devices, TslStore(world.database), limits_of())


def retention(world: World, tenant_days: int = 20_000) -> Retention:
    return Retention(products(world), limits_of(history_days=tenant_days), 30)


def rows(world: World, most: int = 1000) -> HistoryRowLimits:
    return rows_of(world, limits_of(history_rows=most))


def rows_of(world: World, limits: LimitsCache) -> HistoryRowLimits:
    own = world.first.things.store
    return HistoryRowLimits(
        world.first.devices.queries, own, Partitions(world.database), limits, 30
    )


@asynccontextmanager
async def answering(bus: Bus, limits: dict[str, Limits]) -> AsyncIterator[None]:
    """`auth` knows the limits of tenants."""
    rpc = RpcServer(bus, "auth")

    async def get(wanted: GetLimits) -> TenantLimits:
        return TenantLimits(limits.get(wanted.tenant, Limits()))

    rpc.offer("get_limits", GetLimits, get)
    await rpc.start()
    yield
    await rpc.stop()


def sweeps_of(world: World, kept: Retention, most: HistoryRowLimits) -> RetentionSweeper:
    """The job with what it asks."""
    return RetentionSweeper(
        devices=world.first.devices.queries,
        thing_store=world.first.things.store,
        deleted_things=DeletedThings(world.database),
        partitions=Partitions(world.database),
        events=world.database["device_events"],
        ledger=world.first.ledger,
        products=products(world),
        retention=kept,
        rows=most,
        stores=[world.latest, world.commands],
        days=30,
    )


async def sweep_by(job: RetentionSweeper) -> None:
    await job.sweep_platform()
    await shorten(job)


async def shorten(job: RetentionSweeper) -> None:
    for tenant in await job.list_tenants_to_sweep():
        async for _ in job.sweep_tenant(tenant):
            pass


async def sweep(world: World) -> None:
    """One round of the job."""
    await sweep_by(sweeps_of(world, retention(world), rows(world)))


async def write(world: World, device: int, *days: int) -> None:
    """A record of history and an event, so many days ago each."""
    partitions = Partitions(world.database)
    for age in days:
        ts = now_ms() - age * DAY_MS
        await partitions.ensure([partition_number(ts)])
        key = history_key(device, ts, 1)
        await partitions.collection(partition_number(ts)).insert_one(
            {"_id": key, "p": {"age": age}}
        )
        await world.database["device_events"].insert_one({"_id": key, "e": "e", "o": {"age": age}})


async def ages(world: World, collection: str = "history") -> dict[int, list[int]]:
    """The days ago of what there is, by device."""
    rows = await world.stored()
    if collection != "history":
        rows = await world.database[collection].find().sort("_id", 1).to_list(None)
    found: dict[int, list[int]] = {}
    for row in rows:
        device = int.from_bytes(row["_id"][:8], "big")
        found.setdefault(device, []).append((row.get("p") or row.get("o"))["age"])
    return {device: sorted(some) for device, some in found.items()}


async def read(world: World, device: int, days: int = 20_000) -> list[int]:
    """The days ago of what history answers."""
    service = HistoryService(
        HistoryStore(
            world.first.devices,
            Partitions(world.mongo.direct),
            retention(world, days),
            TslStore(world.database),
        ),
        30,
    )
    found = [
        await service.page(ME, device, start=0, end=None, size=9, key=None, order=order)
        for order in ("asc", "desc")
    ]
    assert found[0].list == found[1].list[::-1]
    records = json.decode(json.encode(found[0].list))
    return sorted(record["properties"]["age"] for record in records)


async def test_events_of_devices_are_kept_as_long_as_history(world: World):
    """Those of every device, whatever it has besides."""
    for device in (5, 6, 7):
        await write(world, device, 1, 29)
        old = history_key(device, now_ms() - 31 * DAY_MS, 1)
        await world.database["device_events"].insert_one({"_id": old, "o": {"age": 31}})
    await sweep(world)
    assert await ages(world, "device_events") == {5: [1, 29], 6: [1, 29], 7: [1, 29]}


async def test_history_of_a_tenant_with_fewer_days_is_removed_and_not_shown(world: World):
    """Its limit ends history and events of its devices and own things, and of nobody else."""
    for device in (5, 6, 7):
        await world.add(device)
        await write(world, device, 0, 3, 5, 20)
    await world.add(8, tenant="other")
    await write(world, 8, 0, 20)
    await world.database["things"].insert_one({"_id": 9, "tenant": "default", "integration": "i"})
    await write(world, 9, 0, 20)
    assert await read(world, 5) == [0, 3, 5, 20]
    assert await read(world, 5, days=4) == [0, 3]

    async with answering(world.bus, {"default": Limits(history_days=4)}):
        days = Retention(products(world), LimitsCache(RpcClient(world.bus)), 30)
        await shorten(sweeps_of(world, days, rows(world)))

    left = {5: [0, 3], 6: [0, 3], 7: [0, 3], 8: [0, 20], 9: [0]}
    assert await ages(world) == left
    assert await ages(world, "device_events") == left


async def test_history_of_a_product_with_fewer_days_is_removed_and_not_shown(world: World):
    """The days of the product hold for its devices only."""
    await world.database["products"].insert_one(
        {"_id": {"tenant": "default", "model": "short"}, "historyDays": 4}
    )
    await world.add(5, model="short")
    await world.add(6)
    for device in (5, 6):
        await write(world, device, 0, 3, 5, 20)
    assert await read(world, 5) == [0, 3]
    assert await read(world, 6) == [0, 3, 5, 20]
    await sweep(world)
    assert await ages(world) == {5: [0, 3], 6: [0, 3, 5, 20]}


async def test_a_tenant_with_too_much_history_keeps_the_newest(world: World):
    """As many days as fit into its limit; another tenant keeps all of its own."""
    await world.add(5)
    await world.add(6, tenant="other")
    for device in (5, 6):
        await write(world, device, *range(29))
    assert await rows(world, 29).find_reduced_days() == {}

    async with answering(world.bus, {"default": Limits(history_rows=15)}):
        limits = LimitsCache(RpcClient(world.bus))
        most = rows_of(world, limits)
        assert (await most.find_reduced_days()).keys() == {"default"}
        await shorten(sweeps_of(world, retention(world), most))

    found = await ages(world)
    assert found[5] == list(range(len(found[5])))
    assert 13 <= len(found[5]) <= 17
    assert found[6] == list(range(29))


async def test_nothing_is_left_of_a_device_that_is_gone(world: World):
    """Not even what came while it went; its neighbours keep theirs."""
    for device in (5, 6, 7):
        await world.add(device)
        await write(world, device, 0, 20)
        for name in ("latest", "profiles", "command_turns"):
            await world.database[name].insert_one({"_id": device})
    await world.first.devices.delete("default", 6)
    await sweep(world)
    assert 6 in await ages(world)  # whoever still knows it may write for a while
    await world.database["latest"].insert_one({"_id": 6})

    old = {"$set": {"at": datetime.now(UTC) - timedelta(minutes=6)}}
    await world.database["removed"].update_one({"_id": 6}, old)
    await sweep(world)

    assert await ages(world) == {5: [0, 20], 7: [0, 20]}
    assert await ages(world, "device_events") == {5: [0, 20], 7: [0, 20]}
    for name in ("latest", "profiles", "command_turns"):
        assert await world.database[name].distinct("_id") == [5, 7]
    assert await world.database["removed"].count_documents({}) == 0


async def test_remains_of_earlier_versions_are_deleted(world: World):
    """These are profiles of deleted devices, and turns without a time."""
    await world.add(5)
    for device in (5, 6):
        await world.database["profiles"].insert_one({"_id": device})
        await world.database["command_turns"].insert_one({"_id": device, "taken": 1})
    (ends,) = (one for one in MIGRATIONS if one.number == 600)
    await ends.run(world.database)
    assert await world.database["profiles"].distinct("_id") == [5]
    assert await world.database["command_turns"].count_documents({}) == 0


async def test_pages_of_processes_that_have_ended_are_added_up(world: World):
    """The ledger keeps its totals, and no page for each process that ever was."""
    old = datetime.now(UTC) - timedelta(days=2)
    pages: list[dict[str, Any]] = [
        {"_id": f"old {at}", "stored": 3, "rejected": 1, "at": old} for at in range(4)
    ]
    pages.append({"_id": "of an earlier version", "stored": 5, "rejected": 0})
    await world.database["ledger"].insert_many(pages)
    sn = await world.add(5)
    await world.say(sn, {"properties": {"temperature": 1}})
    await world.deal(1)

    await sweep(world)
    await sweep(world)

    assert await world.totals() == LedgerTotals(stored=18, rejected=4)
    rows = await world.database["ledger"].find().to_list(None)
    assert len(rows) == 2
    assert {"_id": TOTALS_PAGE_ID, "stored": 17, "rejected": 4} in rows


async def test_commands_end_some_days_after_their_end(world: World):
    """MongoDB removes them; those that are open stay."""
    for days in (90, 30):
        await set_retention_days(world.database, "commands", "finishedAt", days)
        index = (await world.database["commands"].index_information())["retention"]
        assert (index["key"], index["expireAfterSeconds"]) == (
            [("finishedAt", 1)],
            days * DAY_SECONDS,
        )
