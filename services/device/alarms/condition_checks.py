"""Checks of values and events against conditions. No I/O."""

import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from services.device.alarms.model import Comparison, EventCondition, ValueCondition

_OPERATOR_BY_COMPARISON: Mapping[Comparison, Callable[[Any, Any], bool]] = {
    "GT": operator.gt,
    "GTE": operator.ge,
    "LT": operator.lt,
    "LTE": operator.le,
    "EQ": operator.eq,
    "NE": operator.ne,
}
_MISSING_VALUE = object()
MAX_SHOWN_CHARACTERS = 512
"""Maximum characters of text that an alarm shows."""


class Verdict(Enum):
    """Result of a check: beyond the threshold, within the hysteresis, or back to normal."""

    BEYOND = "beyond"
    BETWEEN = "within the hysteresis"
    BACK = "back"


ConditionCheck = Callable[[Any], Verdict | None]
"""Checks a value or an event id; returns None for a value of another type, or another event."""


def compile_check(condition: ValueCondition | EventCondition) -> ConditionCheck:
    """Return the function that checks values or event ids against a condition."""
    if isinstance(condition, EventCondition):
        events = {condition.ended_by: Verdict.BACK, condition.event: Verdict.BEYOND}
        return events.get
    threshold, compare = condition.threshold, _OPERATOR_BY_COMPARISON[condition.comparison]
    if isinstance(threshold, (bool, str)):
        kind = type(threshold)

        def check_text(value: Any) -> Verdict | None:
            if type(value) is not kind:
                return None
            return Verdict.BEYOND if compare(value, threshold) else Verdict.BACK

        return check_text
    back = threshold + {"G": -1, "L": 1}.get(condition.comparison[0], 0) * condition.hysteresis

    def check(value: Any) -> Verdict | None:
        if type(value) is not float and type(value) is not int:
            return None
        if compare(value, threshold):
            return Verdict.BEYOND
        return Verdict.BETWEEN if compare(value, back) else Verdict.BACK

    return check


def value_at(properties: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at a path of a report, or None."""
    value: Any = properties
    for name in path:
        value = value.get(name, _MISSING_VALUE) if isinstance(value, dict) else _MISSING_VALUE
        if value is _MISSING_VALUE:
            return None
    return value


def truncate_for_check(value: Any) -> Any:
    """Return a value; cut a text to one character more than a threshold can have."""
    return value[: MAX_SHOWN_CHARACTERS + 1] if isinstance(value, str) else value
