"""Handlers get the fields of their router's dataclass."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

from litestar import Litestar, Router, get
from litestar.di import NamedDependency, Provide
from litestar.testing import TestClient

from libs.common.http import build_dependencies, open_api


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
    router = Router("/outer", route_handlers=[inner], dependencies=build_dependencies(handlers))
    with TestClient(Litestar([Router("/", route_handlers=[router])])) as client:
        assert [client.get("/outer/inner/count").json() for _ in range(2)] == [3, 7]
    assert counter.count == 4


def provide_task() -> Provide:
    """Return a dependency: the task that resolves it."""

    async def current_task() -> Any:
        return asyncio.current_task()

    return Provide(current_task)


@open_api.get("/tasks")
async def compare_tasks(
    first: NamedDependency[Any], second: NamedDependency[Any]
) -> dict[str, list[bool]]:
    """Return which dependencies were resolved in the task of the handler."""
    return {"same": [task is asyncio.current_task() for task in (first, second)]}


def test_dependencies_of_an_operation_are_resolved_without_further_tasks() -> None:
    provided = {name: provide_task() for name in ("first", "second")}
    router = Router("/", route_handlers=[compare_tasks], dependencies=provided)
    with TestClient(Litestar([router])) as client:
        assert client.get("/tasks").json()["data"] == {"same": [True, True]}
