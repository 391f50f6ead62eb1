"""Pages of history across partitions, in both orders."""

import base64
from typing import Any

import pytest
from msgspec import json

from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Principal, PrincipalKind
from services.device.telemetry.history import HistoryPage, HistoryService, HistoryStore
from services.device.telemetry.partitions import (
    DAY_MS,
    PARTITION_MS,
    Partitions,
    collection_name,
    history_key,
    partition_number,
)
from services.device.telemetry.retention import Retention
from services.device.things.product_store import ProductStore
from services.device.things.specifications import TslStore
from tests.integration.device.telemetry.world import World
from tests.limits import limits_of

ME = Principal(PrincipalKind.APPLICATION, "default", "1")
NOW = 200 * PARTITION_MS + PARTITION_MS // 2
BORDER = 200 * PARTITION_MS


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("history", "retention"):
        monkeypatch.setattr(f"services.device.telemetry.{module}.now_ms", lambda: NOW)


@pytest.fixture
async def history(world: World) -> HistoryService:
    await world.add(7)
    return service_of(world)


def service_of(world: World, days: int = 30) -> HistoryService:
    """History that is kept for so many days."""
    store = HistoryStore(
        world.first.devices,
        Partitions(world.mongo.direct),
        retention(world, days),
        TslStore(world.database),
    )
    return HistoryService(store, days)


def retention(world: World, days: int = 30) -> Retention:
    """How long history is kept, where `auth` says nothing of the tenant."""
    products = ProductStore(world.mongo, world.first.devices, TslStore(world.database), limits_of())
    return Retention(products, limits_of(), days)


async def write(world: World, device: int, *times: int, sequence: int = 1) -> None:
    partitions = Partitions(world.database)
    await partitions.ensure(map(partition_number, times))
    for ts in times:
        row = {"_id": history_key(device, ts, sequence), "p": {"t": ts}}
        await partitions.collection(partition_number(ts)).insert_one(row)


def times_of(page: HistoryPage) -> list[int]:
    """The times of the records of a page, which are JSON already."""
    return [record["ts"] for record in json.decode(json.encode(page.list))]


async def times(history: HistoryService, device: int = 7, **more: object) -> list[int]:
    """The times of all pages, one after the other."""
    found: list[int] = []
    key: str | None = None
    while True:
        given = {"start": NOW - 30 * DAY_MS, "end": None, "size": 2, "order": None, **more}
        page = await history.page(ME, device, key=key, **given)  # type: ignore[arg-type]
        found += times_of(page)
        key = page.next_page_key
        if key is None:
            return found


async def test_pages_go_through_partitions_without_a_gap_or_a_copy(
    world: World, history: HistoryService
):
    """Records on both sides of a border, some of one millisecond, come once each, in order."""
    wanted = [BORDER - PARTITION_MS, BORDER - 2, BORDER - 1, BORDER, BORDER + 1, NOW]
    await write(world, 7, *wanted)
    await write(world, 7, BORDER - 1, BORDER, sequence=2)
    await write(world, 6, *wanted)
    await write(world, 8, *wanted)
    both = sorted([*wanted, BORDER - 1, BORDER])
    for size in (1, 2, 3, 7, 8, 9):
        assert await times(history, size=size, order="asc") == both
        assert await times(history, size=size) == both[::-1]


async def test_bounds_are_inclusive(world: World, history: HistoryService):
    """Start and end belong to what is asked for, also when they are one and the same."""
    await write(world, 7, BORDER - 1, BORDER, BORDER + 1)
    assert await times(history, start=BORDER, end=BORDER) == [BORDER]
    assert await times(history, start=BORDER - 1, end=BORDER, order="asc") == [BORDER - 1, BORDER]


async def test_without_bounds_it_is_the_last_day(world: World, history: HistoryService):
    """No bound: one day; only an end: all before it."""
    await write(world, 7, NOW - DAY_MS - 1, NOW - DAY_MS, NOW)
    assert await times(history, start=None) == [NOW, NOW - DAY_MS]
    assert await times(history, start=None, end=NOW - 1) == [NOW - DAY_MS, NOW - DAY_MS - 1]


async def test_a_page_is_one_operation(world: World, history: HistoryService):
    """The device, its TSL and small records are read together, once their size is known."""
    await write(world, 7, *range(NOW - 50, NOW))
    given: dict[str, Any] = {"start": NOW - DAY_MS, "end": None, "key": None, "order": None}
    page = await history.page(ME, 7, size=40, **given)
    await world.database.command("profile", 2)
    assert times_of(await history.page(ME, 7, size=40, **given)) == times_of(page)
    await world.database.command("profile", 0)
    profile = world.database["system.profile"].find({"command.profile": {"$exists": False}})
    assert [entry["ns"].partition(".")[2] async for entry in profile] == ["devices"]


async def test_only_a_visible_device_has_history(world: World, history: HistoryService):
    """404 for others, nothing without data storage, also where the page crosses partitions."""
    await world.add(8, dataStorage=False)
    await world.add(9, application={"applicationId": 2})
    for device in (8, 9):
        await write(world, device, BORDER - 1, NOW)
    assert await times(history, 8) == []
    for device in (9, 10):
        with pytest.raises(NotFound):
            await times(history, device)


async def test_a_page_key_is_stable_while_reports_arrive(world: World, history: HistoryService):
    """New reports above the page do not change the pages below it."""
    await write(world, 7, NOW - 3, NOW - 2, NOW - 1)
    page = await history.page(ME, 7, start=None, end=None, size=2, key=None, order=None)
    await write(world, 7, NOW)
    page = await history.page(
        ME, 7, start=None, end=None, size=2, key=page.next_page_key, order=None
    )
    assert times_of(page) == [NOW - 3]
    assert page.next_page_key is None


async def test_a_cursor_outside_the_bounds_finds_nothing(world: World, history: HistoryService):
    """A key of the device that lies before or behind what is asked for is an empty page."""
    await write(world, 7, BORDER, NOW)
    for ts, order in ((BORDER - 5, "desc"), (NOW + 5, "asc")):
        key = base64.urlsafe_b64encode(history_key(7, ts, 1)).decode()
        page = await history.page(ME, 7, start=BORDER, end=NOW, size=5, key=key, order=order)
        assert page.list == []


async def test_time_zero_and_times_beyond_the_retention_are_empty(
    world: World, history: HistoryService
):
    """Old bounds are allowed and find nothing, not even what has not been dropped yet."""
    await write(world, 7, 0, NOW - 31 * DAY_MS)
    assert await times(history, start=0, end=0) == []
    assert await times(history, start=None, end=0) == []
    assert await times(history, start=0, end=NOW) == []


async def test_a_retention_longer_than_time_itself_is_no_error(world: World):
    """History may be kept for ever."""
    await world.add(7)
    await write(world, 7, 0, 5)
    forever = service_of(world, 36_500)
    page = await forever.page(ME, 7, start=None, end=5, size=9, key=None, order="asc")
    assert times_of(page) == [0, 5]


@pytest.mark.parametrize(
    ("key", "field"),
    [
        (base64.urlsafe_b64encode(history_key(8, NOW, 1)).decode(), "pageKey"),
        (base64.urlsafe_b64encode(history_key(7, 2**63, 1)).decode(), "pageKey"),
        (base64.urlsafe_b64encode(b"short").decode(), "pageKey"),
        ("not base64!", "pageKey"),
        ("é", "pageKey"),
    ],
)
async def test_a_key_that_is_not_ours_is_refused(history: HistoryService, key: str, field: str):
    """Also the key of another device."""
    with pytest.raises(InvalidInput) as caught:
        await history.page(ME, 7, start=None, end=None, size=2, key=key, order=None)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("given", "field"),
    [({"order": "up"}, "order"), ({"start": 2, "end": 1}, "endTime")],
)
async def test_wrong_inputs_name_their_field(
    history: HistoryService, given: dict[str, object], field: str
):
    """Order and bounds are checked before anything is read."""
    usual = {"start": None, "end": None, "size": None, "order": None, "key": None}
    with pytest.raises(InvalidInput) as caught:
        await history.page(ME, 7, **{**usual, **given})  # type: ignore[arg-type]
    assert caught.value.field == field


async def test_old_partitions_are_dropped_whole_and_made_again_when_needed(world: World):
    """Retention drops what ends before it, and a late report finds its partition again."""
    partitions = Partitions(world.database)
    old, border = partition_number(BORDER) - 2, partition_number(BORDER)
    await partitions.ensure([old, border])
    assert await partitions.drop_before(BORDER) == [collection_name(old)]
    assert await partitions.drop_before(BORDER) == []
    await partitions.ensure([old, old])
    options = await world.database[collection_name(old)].options()
    assert options["clusteredIndex"]["unique"]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_page_of_large_records_ends_at_its_bound(
    world: World, history: HistoryService, order: str
):
    """The next one goes on behind it, and none has more bytes."""
    partitions = Partitions(world.database)
    await partitions.ensure([partition_number(NOW)])
    rows = [{"_id": history_key(7, NOW - at, 1), "p": {"t": "x" * 250_000}} for at in range(40)]
    await partitions.collection(partition_number(NOW)).insert_many(rows)
    key, sizes, found = None, [], []
    while key is not None or not sizes:
        page = await history.page(ME, 7, start=0, end=None, size=1000, key=key, order=order)
        sizes.append(len(json.encode(page)))
        found += times_of(page)
        key = page.next_page_key
    assert sorted(found) == [NOW - at for at in range(40)][::-1]
    assert found == sorted(found, reverse=order == "desc")
    assert len(sizes) == 2
    assert 7 * 1024**2 < sizes[0] < 8 * 1024**2


async def test_a_page_is_read_once(world: World, monkeypatch: pytest.MonkeyPatch):
    """Also when it is asked for from before the time that history is kept."""
    await world.add(7)
    await write(world, 7, NOW - 1, NOW - 2)
    later = iter(range(NOW, NOW + 100))
    monkeypatch.setattr("services.device.telemetry.retention.now_ms", lambda: next(later) + 1)
    read: list[int] = []
    honest = Partitions.collection

    def collection(partitions: Partitions, partition: int) -> Any:
        read.append(partition)
        return honest(partitions, partition)

    monkeypatch.setattr(Partitions, "collection", collection)
    page = await service_of(world).page(ME, 7, start=0, end=None, size=1, key=None, order=None)
    assert times_of(page) == [NOW - 1]
    assert read == [partition_number(NOW)]
