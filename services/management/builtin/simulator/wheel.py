"""Whose turn it is: one heap for all devices, however many."""

import heapq
import random
from typing import Any


class Wheel:
    """Turns that come back every so many seconds; times are those of one monotonic clock."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._heap: list[tuple[float, int]] = []
        self._turns: dict[int, tuple[float, float]] = {}
        """Due time and interval by key; what the heap says otherwise is out of date."""

    def __contains__(self, key: Any) -> bool:
        return key in self._turns

    def put(self, key: int, interval: float, now: float) -> None:
        """Give a key its turns; the first within the interval, so that not all come at once."""
        known = self._turns.get(key)
        if known is None or known[1] != interval:
            self._set(key, interval, now + self._rng.random() * interval)

    def remove(self, key: int) -> None:
        """No more turns; unknown keys are fine."""
        self._turns.pop(key, None)

    def take(self, now: float) -> list[int]:
        """The keys whose turn it is. Turns that were missed are not made up for."""
        due: list[int] = []
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            turn = self._turns.get(key)
            if turn is not None and turn[0] == at:
                due.append(key)
                following = at + turn[1]
                self._set(key, turn[1], following if following > now else now + turn[1])
        return due

    def next(self) -> float | None:
        """When the next turn may be; None without any."""
        return self._heap[0][0] if self._heap else None

    def _set(self, key: int, interval: float, at: float) -> None:
        self._turns[key] = (at, interval)
        heapq.heappush(self._heap, (at, key))
