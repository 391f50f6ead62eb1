"""The order of a page."""

import pytest

from libs.common.errors import InvalidInput
from services.device.things.schemas import SortBy, build_order

COLUMNS = {"sn": "snKey", "id": "_id", "name": "name"}


@pytest.mark.parametrize(
    ("sorts", "expected"),
    [
        ([], [("_id", 1)]),
        ([SortBy("sn")], [("snKey", 1), ("_id", 1)]),
        ([SortBy("sn", "DESC")], [("snKey", -1), ("_id", -1)]),
        ([SortBy("id", "desc")], [("_id", -1)]),
        ([SortBy("sn", "desc"), SortBy("name")], [("snKey", -1), ("name", 1), ("_id", 1)]),
        ([SortBy("sn"), SortBy("sn", "desc")], [("snKey", 1), ("_id", -1)]),
    ],
)
def test_an_order_ends_in_the_unique_id(
    sorts: list[SortBy], expected: list[tuple[str, int]]
) -> None:
    """In the direction of the last criterion, so that one index serves both directions."""
    assert build_order(sorts, COLUMNS) == expected


@pytest.mark.parametrize(
    ("sort", "field"),
    [
        (SortBy("$where"), "sorts[1].property"),
        (SortBy("sn", ""), "sorts[1].direction"),
        (SortBy("sn", "down"), "sorts[1].direction"),
    ],
)
def test_a_criterion_at_fault_is_named(sort: SortBy, field: str) -> None:
    """By its place in the list."""
    with pytest.raises(InvalidInput) as refusal:
        build_order([SortBy("sn"), sort], COLUMNS)
    assert refusal.value.field == field
