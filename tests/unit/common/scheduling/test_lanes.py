"""Lanes: turns by deficit round robin, bounds, overflow."""

from collections import defaultdict

import pytest

from libs.common.scheduling import LaneFull, Lanes


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def _lanes(items: int = 10_000, size: int = 1 << 30, clock: Clock | None = None) -> Lanes[int]:
    return Lanes("test", items, size, clock=clock or Clock())


def _served(lanes: Lanes[int], cost: dict[str, float], seconds: float) -> dict[str, float]:
    """Serve one item after the other for so long; return the time that each lane got."""
    used: dict[str, float] = defaultdict(float)
    while sum(used.values()) < seconds:
        lane = lanes.next()
        assert lane is not None
        lanes.pop(lane)
        lanes.charge(lane, cost[lane])
        used[lane] += cost[lane]
    return used


def test_lanes_take_turns() -> None:
    lanes = _lanes()
    for number in range(3):
        lanes.put("a", number)
    lanes.put("b", 0)
    order = []
    while (lane := lanes.next()) is not None:
        order.append((lane, lanes.pop(lane)[0]))
    assert order == [("a", 0), ("b", 0), ("a", 1), ("a", 2)]


def test_lanes_that_wait_get_the_same_time_whatever_their_items_cost() -> None:
    lanes = _lanes()
    cost = {"slow": 0.5, "quick": 0.002, "middle": 0.03}
    for lane in cost:
        for number in range(10_000):
            lanes.put(lane, number)
    used = _served(lanes, cost, 15)
    assert all(abs(used[lane] - 5) <= 0.6 for lane in cost), used


def test_a_lane_that_comes_back_after_much_use_waits_at_most_its_debt() -> None:
    lanes = _lanes()
    lanes.put("a", 0)
    lanes.charge("a", 1_000)
    for number in range(10_000):
        lanes.put("b", number)
    order = []
    for _ in range(6):
        lane = lanes.next()
        assert lane is not None
        lanes.pop(lane)
        lanes.charge(lane, 2.5)
        order.append(lane)
    assert order == ["b", "b", "b", "b", "a", "b"] or order == ["b"] * 5 + ["a"]


def test_a_lane_without_use_comes_before_one_that_holds_a_worker() -> None:
    clock = Clock()
    lanes = _lanes(clock=clock)
    lanes.begin("a")
    clock.now += 1
    lanes.put("a", 1)
    lanes.put("b", 1)
    assert lanes.next() == "b"


def test_time_that_others_worked_beside_a_long_item_is_not_owed() -> None:
    clock = Clock()
    lanes = _lanes(clock=clock)
    began = lanes.begin("long")
    for number in range(600):
        lanes.put("b", number)
        clock.now += 0.01
        lanes.next()
        lanes.pop("b")
        lanes.charge("b", 0.01)
    lanes.end("long", began)
    lanes.put("long", 1)
    lanes.put("b", 1)
    served = []
    for _ in range(2):
        lane = lanes.next()
        assert lane is not None
        lanes.pop(lane)
        lanes.charge(lane, 0.1)
        served.append(lane)
    assert sorted(served) == ["b", "long"]


def test_a_lane_is_bounded_in_items() -> None:
    lanes = _lanes(items=2)
    lanes.put("a", 1)
    lanes.put("a", 2)
    with pytest.raises(LaneFull):
        lanes.put("a", 3)
    lanes.put("b", 1)


def test_a_lane_is_bounded_in_bytes_but_takes_one_large_item() -> None:
    lanes = _lanes(size=100)
    lanes.put("a", 1, size=1_000)
    with pytest.raises(LaneFull):
        lanes.put("a", 2, size=1)
    lanes.put("b", 1, size=60)
    lanes.put("b", 2, size=40)
    assert (lanes.items, lanes.size) == (3, 1_100)


def test_only_lanes_that_may_are_named() -> None:
    lanes = _lanes()
    lanes.put("a", 1)
    lanes.put("b", 1)
    assert lanes.next(lambda lane: lane == "b") == "b"
    assert lanes.next(lambda _: False) is None


def test_sub_lanes_take_turns() -> None:
    lanes = _lanes()
    for number in range(2):
        lanes.put("a", number, sub="first")
    lanes.put("a", 5, sub="second")
    taken = [lanes.pop("a", next(lanes.sub_lanes("a")))[0] for _ in range(3)]
    assert taken == [0, 5, 1]


def test_idle_lanes_are_forgotten_once_there_are_many() -> None:
    lanes = _lanes()
    for number in range(5_000):
        lanes.put(str(number), 1)
        lanes.pop(str(number))
    assert len(list(lanes.lanes_by_name())) <= 1_001


def test_removing_an_item_that_was_taken_does_nothing() -> None:
    lanes = _lanes()
    lanes.put("a", 1)
    lanes.pop("a")
    lanes.remove("a", 1)
    assert not lanes
    assert lanes.items == 0
