"""Results of code as JSON values."""

import pytest

from services.workflow.sandbox.limits import MAX_RESULT_DEPTH, CodeFailed, to_json_value


def test_json_values_stay_and_tuples_become_lists():
    """What nodes may put out."""
    value = {"a": [1, 2.5, True, None, "x"], "b": {"c": ()}}
    assert to_json_value((value,), 1000) == [{**value, "b": {"c": []}}]


def nested(depth: int) -> list:
    """Lists nested at most."""
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def billion() -> list:
    """A small object that is huge when written down."""
    value = ["lol"] * 10
    for _ in range(20):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({1: 2}, "key that is not text"),
        ({1, 2}, "must be text"),
        (b"x", "must be text"),
        (object(), "must be text"),
        (float("nan"), "not finite"),
        (2**63, "more than 64 bits"),
        (-(2**63) - 1, "more than 64 bits"),
        ("x" * 1001, "too large"),
        ({"x" * 1001: 1}, "too large"),
        ([0] * 1001, "too large"),
        (billion(), "too large"),
        (nested(MAX_RESULT_DEPTH + 1), "nested at most"),
    ],
)
def test_an_invalid_result_is_rejected(value, reason):
    """Other types and too large or deep values are rejected early."""
    with pytest.raises(CodeFailed, match=reason):
        to_json_value(value, 1000)


def test_the_edges_are_inside():
    """64 bits, and as many lists as are allowed."""
    assert to_json_value([2**63 - 1, -(2**63)], 100) == [2**63 - 1, -(2**63)]
    assert to_json_value(nested(MAX_RESULT_DEPTH), 1000) == nested(MAX_RESULT_DEPTH)
