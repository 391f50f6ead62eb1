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

QUANTUM = 0.01
"""What a lane may use each round, in seconds of a worker."""
DEBT = 1_000
"""Rounds that a lane can owe at most; the rest is forgotten, so no lane is shut out for long."""
REMEMBERED = 1_000
"""Idle lanes whose use is remembered, for the metrics and for their next turn."""


class LaneFull(TooManyRequests):
    """429: a lane's backlog has as many items or bytes as it may have."""


class _Lane(Generic[T]):
    def __init__(self) -> None:
        self.waiting: OrderedDict[Hashable, deque[tuple[T, int]]] = OrderedDict()
        """Items and their sizes by sub-lane, the sub-lane whose turn is next first."""
        self.items = 0
        self.size = 0
        self.deficit = 0.0
        """What it may still use, as of `round`, without what the running items have used."""
        self.round = -1
        self.used = 0.0
        self.overflowed = 0
        self.running = 0
        self.began = 0.0
        """The sum of the times at which the running items began."""


class Lanes(Generic[T]):
    """Items by lane. `next` names the lane whose turn is next, `pop` takes one of its items.

    A lane's cost is the time that its items held a worker: between `begin` and `end`, or what
    `charge` adds.
    """

    def __init__(
        self,
        name: str,
        items: int,
        size: int,
        *,
        quantum: float = QUANTUM,
        clock: Callable[[], float] = time.monotonic,
        observed: bool = True,
    ) -> None:
        """Each lane holds at most `items` items and `size` bytes; `name` is for the metrics."""
        self.name = name
        self.items = 0
        self.size = 0
        self._most_items = items
        self._most_size = size
        self._quantum = quantum
        self._clock = clock
        self._round = 0
        self._lanes: OrderedDict[str, _Lane[T]] = OrderedDict()
        """All lanes with items or running items, and those that were used last."""
        self._ring: OrderedDict[str, _Lane[T]] = OrderedDict()
        """The lanes with items, the one whose turn is next first."""
        if observed:
            _known.add(self)

    def __bool__(self) -> bool:
        return bool(self._ring)

    def __iter__(self) -> Iterator[T]:
        for lane in self._ring.values():
            for queue in lane.waiting.values():
                yield from (item for item, _ in queue)

    def waiting(self, lane: str) -> int:
        """Return how many items wait in a lane."""
        return self._lanes[lane].items if lane in self._lanes else 0

    def waiting_size(self, lane: str) -> int:
        """Return how many bytes wait in a lane."""
        return self._lanes[lane].size if lane in self._lanes else 0

    def running(self, lane: str) -> int:
        """Return how many workers a lane holds."""
        return self._lanes[lane].running if lane in self._lanes else 0

    def has_room(self, lane: str, size: int = 0) -> bool:
        """Return whether one more item of `size` bytes fits; a single large one always does."""
        known = self._lanes.get(lane)
        if known is None or not known.items:
            return True
        return known.items < self._most_items and known.size + size <= self._most_size

    def put(self, lane: str, item: T, *, size: int = 0, sub: Hashable = None) -> None:
        """Let `item` wait in `lane`; raise `LaneFull` when it does not fit."""
        if not self.has_room(lane, size):
            self.note_overflow(lane)
            raise LaneFull(f"too much waits for {self.name}; try again later", retry_after=1.0)
        entry = self._lane(lane)
        entry.waiting.setdefault(sub, deque()).append((item, size))
        self._count(entry, 1, size)
        self._ring.setdefault(lane, entry)

    def next(self, may: Callable[[str], bool] = lambda _: True) -> str | None:
        """Return the lane whose turn is next, of those that `may` take one; None without any.

        The lane moves to the end of the round.
        """
        now = self._clock()
        best = -math.inf
        for name, lane in self._ring.items():
            elapsed = self._elapsed(lane, now)
            deficit = self._left(lane, elapsed) - elapsed
            if (deficit > 0 or deficit > best) and may(name):
                if deficit > 0:
                    self._ring.move_to_end(name)
                    return name
                best = deficit
        if best == -math.inf:
            return None
        self._round += math.floor(-best / self._quantum) + 1
        return self.next(may)

    def sub_lanes(self, lane: str) -> Iterator[Hashable]:
        """Return the sub-lanes of a lane that have items, in the order of their turns."""
        return iter(self._lanes[lane].waiting)

    def pop(self, lane: str, sub: Hashable = None) -> tuple[T, int]:
        """Take the first item of a sub-lane, with its size; the sub-lane goes to the end."""
        entry = self._lanes[lane]
        queue = entry.waiting[sub]
        item, size = queue.popleft()
        if queue:
            entry.waiting.move_to_end(sub)
        else:
            del entry.waiting[sub]
        self._count(entry, -1, -size)
        self._settle(lane, entry)
        return item, size

    def remove(self, lane: str, item: T, *, size: int = 0, sub: Hashable = None) -> None:
        """Take a waiting item out; do nothing when it waits no longer."""
        entry = self._lane(lane)
        queue = entry.waiting.get(sub, deque())
        if (item, size) not in queue:
            return
        queue.remove((item, size))
        if not queue:
            del entry.waiting[sub]
        self._count(entry, -1, -size)
        self._settle(lane, entry)

    def begin(self, lane: str) -> float:
        """Note that a lane holds one more worker; return the time for `end`."""
        entry, now = self._lane(lane), self._clock()
        entry.running += 1
        entry.began += now
        return now

    def end(self, lane: str, began: float) -> None:
        """Note that a lane let a worker go, and charge the time that it held it."""
        entry = self._lanes[lane]
        entry.running -= 1
        entry.began -= began
        self.charge(lane, self._clock() - began)

    def charge(self, lane: str, cost: float) -> None:
        """Add to what a lane has used."""
        entry = self._lane(lane)
        entry.used += cost
        left = self._left(entry, self._elapsed(entry, self._clock())) - cost
        entry.deficit, entry.round = max(left, -DEBT * self._quantum), self._round
        self._forget(lane, entry)

    def note_overflow(self, lane: str) -> None:
        """Count an item that found no room."""
        self._lane(lane).overflowed += 1

    def each(self) -> Iterator[tuple[str, _Lane[T]]]:
        """Return the lanes that are remembered, by name."""
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

    def _settle(self, name: str, lane: _Lane[T]) -> None:
        if not lane.items:
            del self._ring[name]
            self._forget(name, lane)

    def _elapsed(self, lane: _Lane[T], now: float) -> float:
        """Return what the running items of a lane have used so far."""
        return lane.running * now - lane.began if lane.running else 0.0

    def _left(self, lane: _Lane[T], elapsed: float) -> float:
        """Return what a lane may still use in this round, before `elapsed` is subtracted."""
        gained = (self._round - lane.round) * self._quantum
        return min(lane.deficit + gained, self._quantum + elapsed)

    def _forget(self, name: str, lane: _Lane[T]) -> None:
        """Drop an idle lane once there are many of them; those used last are kept."""
        self._lanes.move_to_end(name)
        if len(self._lanes) <= REMEMBERED or lane.items or lane.running:
            return
        for old, one in self._lanes.items():
            if not (one.items or one.running):
                del self._lanes[old]
                return


_known: WeakSet[Lanes[Any]] = WeakSet()


def _observer(
    value: Callable[[_Lane[Any]], float],
) -> Callable[[CallbackOptions], list[Observation]]:
    def observe(_: CallbackOptions) -> list[Observation]:
        sums: dict[tuple[str, str], float] = defaultdict(float)
        for lanes in list(_known):
            for tenant, lane in lanes.each():
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
    description="Items of a tenant that wait",
)
_meter.create_observable_counter(
    "thingway_scheduler_used",
    [_observer(lambda lane: lane.used)],
    description="Seconds of workers, or bytes of queues, that a tenant has used",
)
_meter.create_observable_counter(
    "thingway_scheduler_overflow",
    [_observer(lambda lane: lane.overflowed)],
    description="Items of a tenant that found its lane full",
)
