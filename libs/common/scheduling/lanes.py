"""Lanes of waiting items that take turns by deficit round robin. No I/O."""

import math
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from opentelemetry.metrics import CallbackOptions, Observation, get_meter

from libs.common.errors import TooManyRequests

T = TypeVar("T")

QUANTUM_SECONDS = 0.01
"""Seconds of worker time that each lane may use per round."""
MAX_DEBT_ROUNDS = 1_000
"""Maximum debt of a lane in rounds, so that no lane is blocked for long."""
MAX_IDLE_LANES = 1_000
"""Number of lanes above which idle ones, with their usage, are forgotten."""


class LaneFull(TooManyRequests):
    """429: a lane's backlog is full."""


class _Lane(Generic[T]):
    def __init__(self) -> None:
        self.waiting: OrderedDict[Hashable, deque[tuple[T, int]]] = OrderedDict()
        """Items and their sizes by sub-lane, in the order of the sub-lanes' turns."""
        self.items = 0
        self.size = 0
        self.deficit = 0.0
        """Remaining usage as of `round`, without the usage of running items."""
        self.round = -1
        self.used = 0.0
        self.overflowed = 0
        self.running = 0
        self.began = 0.0
        """The sum of the start times of running items."""


class Lanes(Generic[T]):
    """Waiting items by lane. `next` selects a lane, `pop` removes one of its items.

    A lane's cost is the time for which its items occupied a worker, between `begin` and `end`, and
    the costs passed to `charge`.
    """

    def __init__(
        self,
        name: str,
        items: int,
        size: int,
        *,
        quantum: float = QUANTUM_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        has_metrics: bool = True,
    ) -> None:
        """Limit each lane to `items` items and `size` bytes; `name` is used in metrics."""
        self.name = name
        self.items = 0
        self.size = 0
        self._most_items = items
        self._most_size = size
        self._quantum = quantum
        self._clock = clock
        self._round = 0
        self._lanes: OrderedDict[str, _Lane[T]] = OrderedDict()
        """All lanes with waiting or running items, and the most recently used others."""
        self._ring: OrderedDict[str, _Lane[T]] = OrderedDict()
        """The lanes with waiting items, in the order of their turns."""
        if has_metrics:
            _known.add(self)

    def __bool__(self) -> bool:
        return bool(self._ring)

    def __iter__(self) -> Iterator[T]:
        for lane in self._ring.values():
            for queue in lane.waiting.values():
                yield from (item for item, _ in queue)

    def waiting(self, lane: str) -> int:
        """Return the number of items that wait in a lane."""
        return self._lanes[lane].items if lane in self._lanes else 0

    def waiting_size(self, lane: str) -> int:
        """Return the bytes that wait in a lane."""
        return self._lanes[lane].size if lane in self._lanes else 0

    def running(self, lane: str) -> int:
        """Return the number of workers that a lane occupies."""
        return self._lanes[lane].running if lane in self._lanes else 0

    def has_room(self, lane: str, size: int = 0) -> bool:
        """Return whether an item of `size` bytes fits; an empty lane accepts any size."""
        entry = self._lanes.get(lane)
        if entry is None or not entry.items:
            return True
        return entry.items < self._most_items and entry.size + size <= self._most_size

    def put(self, lane: str, item: T, *, size: int = 0, sub: Hashable = None) -> None:
        """Add an item to a lane; raise `LaneFull` if it does not fit."""
        if not self.has_room(lane, size):
            self.count_overflow(lane)
            raise LaneFull(
                f"too many requests wait for {self.name}; try again later", retry_after=1.0
            )
        entry = self._lane(lane)
        entry.waiting.setdefault(sub, deque()).append((item, size))
        self._count(entry, 1, size)
        self._ring.setdefault(lane, entry)

    def next(self, may: Callable[[str], bool] = lambda _: True) -> str | None:
        """Return the next lane in turn for which `may` returns True; None without any.

        The lane moves to the end of the round.
        """
        now = self._clock()
        best, chosen = -math.inf, None
        for name, lane in self._ring.items():
            elapsed = self._elapsed(lane, now)
            deficit = self._remaining(lane, elapsed) - elapsed
            if deficit > best and may(name):
                best, chosen = deficit, name
                if deficit > 0:
                    break
        if chosen is not None:
            self._round += max(0, math.floor(-best / self._quantum) + 1)
            self._ring.move_to_end(chosen)
        return chosen

    def sub_lanes(self, lane: str) -> Iterator[Hashable]:
        """Return the sub-lanes of a lane that have items, in the order of their turns."""
        return iter(self._lanes[lane].waiting)

    def pop(self, lane: str, sub: Hashable = None) -> tuple[T, int]:
        """Remove and return the first item of a sub-lane and its size.

        The sub-lane moves to the end of the lane's turns.
        """
        entry = self._lanes[lane]
        queue = entry.waiting[sub]
        item, size = queue.popleft()
        if queue:
            entry.waiting.move_to_end(sub)
        else:
            del entry.waiting[sub]
        self._count(entry, -1, -size)
        self._remove_if_empty(lane, entry)
        return item, size

    def remove(self, lane: str, item: T, *, size: int = 0, sub: Hashable = None) -> None:
        """Remove a waiting item; do nothing if it is no longer waiting."""
        entry = self._lane(lane)
        queue = entry.waiting.get(sub, deque())
        if (item, size) not in queue:
            return
        queue.remove((item, size))
        if not queue:
            del entry.waiting[sub]
        self._count(entry, -1, -size)
        self._remove_if_empty(lane, entry)

    def begin(self, lane: str) -> float:
        """Record that a lane occupies one more worker; return the time for `end`."""
        entry, now = self._lane(lane), self._clock()
        entry.running += 1
        entry.began += now
        return now

    def end(self, lane: str, began: float) -> None:
        """Record that a lane released a worker, and charge the elapsed time."""
        entry = self._lanes[lane]
        entry.running -= 1
        entry.began -= began
        self.charge(lane, self._clock() - began)

    def charge(self, lane: str, cost: float) -> None:
        """Add a cost to the usage of a lane."""
        entry = self._lane(lane)
        entry.used += cost
        remaining = self._remaining(entry, self._elapsed(entry, self._clock())) - cost
        entry.deficit, entry.round = max(remaining, -MAX_DEBT_ROUNDS * self._quantum), self._round
        self._forget(lane, entry)

    def count_overflow(self, lane: str) -> None:
        """Count an item that did not fit."""
        self._lane(lane).overflowed += 1

    def lanes_by_name(self) -> Iterator[tuple[str, _Lane[T]]]:
        """Return the remembered lanes by name."""
        return iter(self._lanes.items())

    def _lane(self, name: str) -> _Lane[T]:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
            lane.round = self._round - 1
        return lane

    def _count(self, lane: _Lane[T], items: int, size: int) -> None:
        lane.items += items
        lane.size += size
        self.items += items
        self.size += size

    def _remove_if_empty(self, name: str, lane: _Lane[T]) -> None:
        if not lane.items:
            del self._ring[name]
            self._forget(name, lane)

    def _elapsed(self, lane: _Lane[T], now: float) -> float:
        """Return the usage of the running items of a lane so far."""
        return lane.running * now - lane.began if lane.running else 0.0

    def _remaining(self, lane: _Lane[T], elapsed: float) -> float:
        """Return the remaining usage of a lane in this round, before `elapsed` is subtracted."""
        gained = (self._round - lane.round) * self._quantum
        return min(lane.deficit + gained, self._quantum + elapsed)

    def _forget(self, name: str, lane: _Lane[T]) -> None:
        """Drop the least recently used idle lane if too many are remembered."""
        self._lanes.move_to_end(name)
        if len(self._lanes) <= MAX_IDLE_LANES or lane.items or lane.running:
            return
        for old, other in self._lanes.items():
            if not (other.items or other.running):
                del self._lanes[old]
                return


_known: WeakSet[Lanes[Any]] = WeakSet()


def _observer(
    value: Callable[[_Lane[Any]], float],
) -> Callable[[CallbackOptions], list[Observation]]:
    def observe(_: CallbackOptions) -> list[Observation]:
        sums: dict[tuple[str, str], float] = defaultdict(float)
        for lanes in list(_known):
            for tenant, lane in lanes.lanes_by_name():
                sums[lanes.name, tenant] += value(lane)
        return [
            Observation(total, {"scheduler": name, "tenant": tenant})
            for (name, tenant), total in sums.items()
        ]

    return observe


_meter = get_meter("thingway")
_meter.create_observable_gauge(
    "thingway_scheduler_waiting",
    [_observer(lambda lane: lane.items)],
    description="Waiting items of a tenant",
)
_meter.create_observable_counter(
    "thingway_scheduler_used",
    [_observer(lambda lane: lane.used)],
    description="Seconds of workers, or bytes of queues, used by a tenant",
)
_meter.create_observable_counter(
    "thingway_scheduler_overflow",
    [_observer(lambda lane: lane.overflowed)],
    description="Items of a tenant that were rejected because its lane was full",
)
