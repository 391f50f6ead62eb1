"""The twelve operators of conditions. No I/O."""

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from services.workflow.expressions.references import format_text

MAX_NUMBER_CHARACTERS = 400
"""Maximum characters of a text that is parsed as a number."""


class ConditionFailed(Exception):
    """An operator does not support its operands."""


def compare(operator: str, left: Any, right: Any) -> bool:
    """Return whether `left operator right` is true; raise `ConditionFailed`."""
    return COMPARISONS_BY_OPERATOR[operator](left, right)


def _equal(left: Any, right: Any) -> bool:
    """Return whether values are equal.

    None equals only None. Two values of one type are compared as they are, a number and a text as
    numbers, and all other pairs as texts.
    """
    if left is None or right is None:
        return left is right
    if _is_number(left) != _is_number(right) and isinstance(left, str) != isinstance(right, str):
        try:
            return _parse_number(left) == _parse_number(right)
        except ConditionFailed:
            return False
    if type(left) is type(right) or (_is_number(left) and _is_number(right)):
        return bool(left == right)
    return format_text(left) == format_text(right)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_empty(left: Any, _: Any) -> bool:
    return left is None or (isinstance(left, str | list | Mapping) and len(left) == 0)


def _contains(left: Any, right: Any) -> bool:
    if left is None:
        return False
    if isinstance(left, list):
        return any(_equal(item, right) for item in left)
    if isinstance(left, str) and right is not None:
        return format_text(right) in left
    raise ConditionFailed("the left side of CONTAINS must be a text or a list")


def _starts_with(left: Any, right: Any) -> bool:
    return (
        left is not None and right is not None and format_text(left).startswith(format_text(right))
    )


def _ends_with(left: Any, right: Any) -> bool:
    return left is not None and right is not None and format_text(left).endswith(format_text(right))


def _build_number_comparison(
    compare: Callable[[Decimal, Decimal], bool],
) -> Callable[[Any, Any], bool]:
    def check(left: Any, right: Any) -> bool:
        if left is None or right is None:
            return False
        return compare(_parse_number(left), _parse_number(right))

    return check


def _parse_number(value: Any) -> Decimal:
    if _is_number(value) or (isinstance(value, str) and len(value) <= MAX_NUMBER_CHARACTERS):
        try:
            number = Decimal(str(value).strip())
        except InvalidOperation:
            number = Decimal("NaN")
        if not number.is_nan():
            return number
    raise ConditionFailed(f"{format_text(value)[:100]!r} is not a number")


COMPARISONS_BY_OPERATOR: Mapping[str, Callable[[Any, Any], bool]] = {
    "CONTAINS": _contains,
    "NOT_CONTAINS": lambda left, right: not _contains(left, right),
    "START_WITH": _starts_with,
    "END_WITH": _ends_with,
    "EQ": _equal,
    "NE": lambda left, right: not _equal(left, right),
    "IS_EMPTY": _is_empty,
    "IS_NOT_EMPTY": lambda left, right: not _is_empty(left, right),
    "GT": _build_number_comparison(lambda left, right: left > right),
    "GE": _build_number_comparison(lambda left, right: left >= right),
    "LT": _build_number_comparison(lambda left, right: left < right),
    "LE": _build_number_comparison(lambda left, right: left <= right),
}
