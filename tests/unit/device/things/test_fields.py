"""The order of a page."""

import pytest

from libs.common.errors import InvalidInput
from services.device.things.fields import Sort, order_of

COLUMNS = {"sn": "snKey", "id": "_id", "name": "name"}


@pytest.mark.parametrize(
    ("sorts", "expected"),
    [
        ([], [("_id", 1)]),
        ([Sort("sn")], [("snKey", 1), ("_id", 1)]),
        ([Sort("sn", "DESC")], [("snKey", -1), ("_id", -1)]),
        ([Sort("id", "desc")], [("_id", -1)]),
        ([Sort("sn", "desc"), Sort("name")], [("snKey", -1), ("name", 1), ("_id", 1)]),
        ([Sort("sn"), Sort("sn", "desc")], [("snKey", 1), ("_id", -1)]),
    ],
)
def test_an_order_ends_in_the_unique_id(sorts: list[Sort], expected: list[tuple[str, int]]) -> None:
    """In the direction of the last criterion, so that one index serves both directions."""
    assert order_of(sorts, COLUMNS) == expected


@pytest.mark.parametrize(
    ("sort", "field"),
    [
        (Sort("$where"), "sorts[1].property"),
        (Sort("sn", ""), "sorts[1].direction"),
        (Sort("sn", "down"), "sorts[1].direction"),
    ],
)
def test_a_criterion_at_fault_is_named(sort: Sort, field: str) -> None:
    """By its place in the list."""
    with pytest.raises(InvalidInput) as refusal:
        order_of([Sort("sn"), sort], COLUMNS)
    assert refusal.value.field == field
