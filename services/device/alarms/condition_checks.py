"""Checks values and events against the condition of a rule. No I/O."""

import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from services.device.alarms.model import Comparison, EventCondition, ValueCondition

_COMPARE: Mapping[Comparison, Callable[[Any, Any], bool]] = {
    "GT": operator.gt,
    "GTE": operator.ge,
    "LT": operator.lt,
    "LTE": operator.le,
    "EQ": operator.eq,
    "NE": operator.ne,
}
_MISSING = object()
LONGEST_VALUE = 512
"""Characters of a text that an alarm shows."""


class Verdict(Enum):
    """What a value says."""

    BEYOND = "beyond"
    BETWEEN = "within the hysteresis"
    BACK = "back"


Judge = Callable[[Any], Verdict | None]
"""None for what is no value of the rule's kind."""


def judge_of(condition: ValueCondition | EventCondition) -> Judge:
    """What judges a value, or the id of an event."""
    if isinstance(condition, EventCondition):
        events = {condition.ended_by: Verdict.BACK, condition.event: Verdict.BEYOND}
        return events.get
    threshold, compare = condition.threshold, _COMPARE[condition.comparison]
    if isinstance(threshold, (bool, str)):
        kind = type(threshold)

        def judge_text(value: Any) -> Verdict | None:
            if type(value) is not kind:
                return None
            return Verdict.BEYOND if compare(value, threshold) else Verdict.BACK

        return judge_text
    back = threshold + {"G": -1, "L": 1}.get(condition.comparison[0], 0) * condition.hysteresis

    def judge(value: Any) -> Verdict | None:
        if type(value) is not float and type(value) is not int:
            return None
        if compare(value, threshold):
            return Verdict.BEYOND
        return Verdict.BETWEEN if compare(value, back) else Verdict.BACK

    return judge


def value_at(properties: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value at a path of a report; None where there is none."""
    value: Any = properties
    for name in path:
        value = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
        if value is _MISSING:
            return None
    return value


def bounded(value: Any) -> Any:
    """Cut a text that is longer than any that a rule compares with: it stays unequal."""
    return value[: LONGEST_VALUE + 1] if isinstance(value, str) else value
