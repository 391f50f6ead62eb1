"""The order of those that wait: who holds least comes first, of several who came first."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Order(Generic[K]):
    """Those that wait, by how much they hold; each step takes as long for few as for many."""

    def __init__(self) -> None:
        self._held: dict[K, int] = {}
        self._lines: dict[int, OrderedDict[K, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def put(self, key: K, held: int) -> None:
        """Let `key` wait; it keeps its place when it waits with as much already."""
        if self._held.get(key) != held:
            self.drop(key)
            self._held[key] = held
            self._lines.setdefault(held, OrderedDict())[key] = None

    def drop(self, key: K) -> None:
        """Let `key` wait no longer; it may be unknown."""
        held = self._held.pop(key, None)
        if held is not None:
            del self._lines[held][key]
            if not self._lines[held]:
                del self._lines[held]

    def first(self) -> K:
        """Whose turn it is; raise `ValueError` when nobody waits."""
        return next(iter(self._lines[min(self._lines)]))
