"""A mapping with a bound: it keeps what was put or asked for last."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most `most` values; the one that was not used for longest makes room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        """The value of `key`, which counts as a use."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V | None:
        """Set the value of `key`; return the value that had to make room."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) <= self._most:
            return None
        return self._values.popitem(last=False)[1]

    def pop(self, key: K) -> V | None:
        """Forget `key`; return its value."""
        return self._values.pop(key, None)
