"""CachedCounter of searches: exact when small, lately counted when large."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from libs.common.store.mongo import Mongo
from services.device.things import device_search as counting
from services.device.things.device_search import CachedCounter
from tests.integration.device.telemetry.world import until
from tests.servers import Servers

MINE = {"tenant": "t"}


@pytest_asyncio.fixture
async def mongo(servers: Servers, emptied: Callable[[str], str]) -> AsyncIterator[Mongo]:
    made = Mongo(servers.mongo_url, emptied("totals"))
    yield made
    await made.close()


@pytest.fixture
def totals(mongo: Mongo, monkeypatch: pytest.MonkeyPatch) -> CachedCounter[int]:
    monkeypatch.setattr(counting, "MIN_CACHED_TOTAL", 3)
    devices = mongo.database["devices"]
    return CachedCounter(devices, devices.count_documents, int, cache_size=10)


async def add(mongo: Mongo, number: int) -> None:
    await mongo.database["devices"].insert_many([{"tenant": "t"} for _ in range(number)])


async def is_told(totals: CachedCounter[int], number: int) -> bool:
    return await totals.count(MINE) == number


async def test_a_small_total_is_exact(mongo: Mongo, totals: CachedCounter[int]):
    """Whatever was counted before."""
    assert await totals.count(MINE) == 0
    await add(mongo, 2)
    assert await totals.count(MINE) == 2


async def test_a_large_total_is_cached_and_counted_in_the_background(
    mongo: Mongo, totals: CachedCounter[int], monkeypatch: pytest.MonkeyPatch
):
    """No request waits for the count; a later one gets the new total."""
    await add(mongo, 5)
    assert await totals.count(MINE) == 5
    await add(mongo, 5)
    assert await totals.count(MINE) == 5
    monkeypatch.setattr(counting, "RECOUNT_AFTER_SECONDS", 0.0)
    assert await totals.count(MINE) == 5
    await until(partial(is_told, totals, 10))


async def test_an_old_total_is_counted_again_before_the_answer(
    mongo: Mongo, totals: CachedCounter[int], monkeypatch: pytest.MonkeyPatch
):
    """Totals of different searches are separate."""
    await add(mongo, 5)
    assert await totals.count(MINE) == 5
    await add(mongo, 5)
    monkeypatch.setattr(counting, "MAX_TOTAL_AGE_SECONDS", 0.0)
    assert await totals.count(MINE) == 10
    other: dict[str, Any] = {"tenant": "other"}
    assert await totals.count(other) == 0


async def test_a_wrong_total_is_counted_again(mongo: Mongo, totals: CachedCounter[int]):
    """Other users get the new total, even if it is small now."""
    await add(mongo, 5)
    assert await totals.count(MINE) == 5
    await mongo.database["devices"].delete_many({})
    assert await totals.count(MINE) == 5
    assert await totals.count(MINE, fresh=True) == 0
    assert await totals.count(MINE) == 0
