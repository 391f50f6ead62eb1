"""Queues whose items are taken in turns of tenants."""

import asyncio
from collections import Counter

from libs.common.scheduling import FairQueue


def _queue(items: int = 3, size: int = 1 << 20) -> FairQueue[int]:
    return FairQueue("test", items=items, size=size)


async def test_a_few_items_are_taken_before_the_rest_of_many() -> None:
    queue: FairQueue[int] = _queue(items=1_000)
    for number in range(1_000):
        queue.put("loud", number, size=1_000)
    queue.put("quiet", 1, size=10)
    taken = await queue.pop_batch(40, 1 << 20)
    assert ("quiet", 1) in taken
    assert [item for lane, item in taken if lane == "loud"] == list(range(39))


async def test_lanes_share_by_bytes() -> None:
    queue: FairQueue[int] = _queue(items=100_000, size=1 << 30)
    for number in range(20_000):
        queue.put("small", number, size=1_000)
        queue.put("large", number, size=50_000)
    taken = Counter(lane for lane, _ in queue.pop_waiting(4_000, 1 << 30))
    assert 30 < taken["small"] / taken["large"] < 50


async def test_a_full_lane_drops_the_newest() -> None:
    queue = _queue()
    assert [queue.put("a", number) for number in range(4)] == [True, True, True, False]
    assert queue.put("b", 9)
    assert [item for lane, item in queue.pop_waiting(9, 1 << 20) if lane == "a"] == [0, 1, 2]


async def test_taking_waits_for_an_item() -> None:
    queue = _queue()
    taking = asyncio.ensure_future(queue.pop_batch(1, 1))
    await asyncio.sleep(0)
    assert not taking.done()
    queue.put("a", 7)
    assert await taking == [("a", 7)]
