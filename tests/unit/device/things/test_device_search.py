"""What finds a page of a console's search: the filter that the fewest meet, or the order."""

from dataclasses import replace
from typing import Any, Self

import pytest

from services.device.things.device_search import DeviceSearch, IndexFilter, PageQuery

EVERYBODY = 50_000


class _Cursor:
    """An answer of these rows."""

    def __init__(self, *rows: Any) -> None:
        self._rows = iter(rows)

    async def to_list(self, _: None) -> list[Any]:
        return list(self._rows)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        for row in self._rows:
            return row
        raise StopAsyncIteration


class _Devices:
    """A collection that has so many devices by a field, and notes how pages are found."""

    def __init__(self, **numbers: int) -> None:
        self.numbers = numbers
        self.hints: list[str | None] = []
        self.counted: list[str | None] = []

    async def count_documents(
        self, condition: dict[str, Any], limit: int = 0, hint: str | None = None
    ) -> int:
        known = [number for field, number in self.numbers.items() if field in condition]
        if "all" in condition:
            self.counted.append(hint)
        number = known[0] if known else EVERYBODY
        return min(number, limit) if limit else number

    async def aggregate(self, _: Any, *, hint: str) -> _Cursor:
        self.hints.append(hint)
        return _Cursor({"ids": [], "total": self.numbers["all"]})

    def find(self, *_: Any, hint: str | None = None, **__: Any) -> _Cursor:
        if hint is not None:
            self.hints.append(hint)
        return _Cursor()


def query(*index_filters: str, skip: int = 0) -> PageQuery:
    """A search with these filters."""
    return PageQuery(
        filter={"all": 1},
        order=[("name", 1)],
        skip=skip,
        limit=10,
        scope={"tenant": "t"},
        index_filters=[IndexFilter(f"by_{name}", [{name: 1}]) for name in index_filters],
        order_index="by_order",
    )


@pytest.mark.parametrize(
    ("numbers", "total", "led"),
    [
        ({"group": 100, "model": 9_000}, 90, "by_group"),
        ({"group": 9_000, "model": 100}, 90, "by_model"),
        ({"group": 9_000, "model": 9_500}, 50, "by_group"),
        ({"group": 9_000, "model": 9_500}, 5_000, "by_group"),
        ({"group": 20_000, "model": 30_000}, 15_000, "by_order"),
    ],
)
async def test_the_fewest_lead_unless_the_order_is_shorter(
    numbers: dict[str, int], total: int, led: str
) -> None:
    """A few are looked at as a whole; of many, those that a walk in order passes over count."""
    devices = _Devices(all=total, **numbers)
    _, found = await DeviceSearch(devices).find(query("group", "model"))  # type: ignore[arg-type]
    assert found == total
    assert devices.hints == [led]
    assert "by_order" not in devices.counted


async def test_a_page_behind_the_last_is_not_looked_for() -> None:
    """The total says that it is empty."""
    devices = _Devices(all=20, group=20_000)
    rows, total = await DeviceSearch(devices).find(query("group", skip=20))  # type: ignore[arg-type]
    assert ([row async for row in rows], total) == ([], 20)
    assert devices.hints == []


async def test_any_of_a_list_counts() -> None:
    """The devices of two tags are as many as both have together."""
    devices = _Devices(all=80, tag=4_000, model=6_000)
    tags = IndexFilter("by_tag", [{"tag": "a"}, {"tag": "b"}])
    asked = replace(query("model"), index_filters=[*query("model").index_filters, tags])
    await DeviceSearch(devices).find(asked)  # type: ignore[arg-type]
    assert devices.hints == ["by_model"]
