"""Handlers get the fields of their router's dataclass."""

from dataclasses import dataclass
from functools import partial

from litestar import Litestar, Router, get
from litestar.di import NamedDependency
from litestar.testing import TestClient

from libs.common.http import provide


class Counter:
    """Counts its calls, and refuses to be copied."""

    count = 0

    def __deepcopy__(self, _: object) -> "Counter":
        raise AssertionError("the dependency was copied")

    def increment(self) -> int:
        """Add one call and return their number."""
        self.count += 1
        return self.count


@dataclass(frozen=True, kw_only=True)
class Handlers:
    """Dependencies of the handlers."""

    counter: Counter
    increment: partial[int]


@get("/count", sync_to_thread=False)
def get_count(counter: NamedDependency[Counter], increment: NamedDependency[partial[int]]) -> int:
    """Count through both dependencies."""
    return increment() + counter.increment()


def test_nested_routers_hand_the_same_objects_to_each_request() -> None:
    counter = Counter()
    handlers = Handlers(counter=counter, increment=partial(counter.increment))
    inner = Router("/inner", route_handlers=[get_count])
    router = Router("/outer", route_handlers=[inner], dependencies=provide(handlers))
    with TestClient(Litestar([Router("/", route_handlers=[router])])) as client:
        assert [client.get("/outer/inner/count").json() for _ in range(2)] == [3, 7]
    assert counter.count == 4
