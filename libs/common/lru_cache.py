"""A mapping of limited size that drops the least recently used value."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """At most `maximum` values; the least recently used one is dropped."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        """Return the value of `key`, or None, and mark it as used."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V | None:
        """Set the value of `key`; return the value that was dropped for it, or None."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) <= self._maximum:
            return None
        return self._values.popitem(last=False)[1]

    def pop(self, key: K) -> V | None:
        """Remove `key`; return its value, or None."""
        return self._values.pop(key, None)
