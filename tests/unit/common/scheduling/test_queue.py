"""Queues whose items are taken in turns of tenants."""

import asyncio
from collections import Counter

import pytest

from libs.common.scheduling import FairQueue, LaneFull, Overflow


def _queue(overflow: Overflow, items: int = 3, size: int = 1 << 20) -> FairQueue[int]:
    return FairQueue("test", items=items, size=size, overflow=overflow)


async def test_a_few_items_are_taken_before_the_rest_of_many() -> None:
    queue: FairQueue[int] = _queue(Overflow.REJECT, items=1_000)
    for number in range(1_000):
        queue.put("loud", number, size=1_000)
    queue.put("quiet", 1, size=10)
    taken = await queue.take(40, 1 << 20)
    assert ("quiet", 1) in taken
    assert [item for lane, item in taken if lane == "loud"] == list(range(39))


async def test_lanes_share_by_bytes() -> None:
    queue: FairQueue[int] = _queue(Overflow.REJECT, items=100_000, size=1 << 30)
    for number in range(20_000):
        queue.put("small", number, size=1_000)
        queue.put("large", number, size=50_000)
    taken = Counter(lane for lane, _ in queue.take_now(4_000, 1 << 30))
    assert 30 < taken["small"] / taken["large"] < 50


async def test_a_full_lane_drops_its_oldest() -> None:
    queue = _queue(Overflow.DROP_OLDEST)
    assert [queue.put("a", number) for number in range(5)] == [True, True, True, False, False]
    assert await queue.take(1, 1) == [("a", 2)]
    assert queue.take_now(9, 1 << 20) == [("a", 3), ("a", 4)]


async def test_a_full_lane_drops_the_newest() -> None:
    queue = _queue(Overflow.DROP_NEWEST)
    assert [queue.put("a", number) for number in range(4)] == [True, True, True, False]
    assert [item for _, item in queue.take_now(9, 1 << 20)] == [0, 1, 2]


async def test_a_full_lane_rejects() -> None:
    queue = _queue(Overflow.REJECT)
    for number in range(3):
        queue.put("a", number)
    with pytest.raises(LaneFull):
        queue.put("a", 3)
    assert queue.put("b", 1)


async def test_taking_waits_for_an_item() -> None:
    queue = _queue(Overflow.REJECT)
    taking = asyncio.ensure_future(queue.take(1, 1))
    await asyncio.sleep(0)
    assert not taking.done()
    queue.put("a", 7)
    assert await taking == [("a", 7)]
