"""Decides what values, events and time do to the state of a rule. No I/O.

A state is carried over the reports of a device in the order of their times; so what comes twice,
late, or to two processes comes to the same, and nothing depends on when it is looked at.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from services.device.alarms.model import (
    Comparison,
    EventCondition,
    Rule,
    SilenceCondition,
    State,
    ValueCondition,
)

SETTLING = 10_000
"""ms after which a change is looked at once more: by then every process knows of it."""

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


class Row(NamedTuple):
    """A value of a device, or the id of an event; in order of (`ts`, `sequence`)."""

    ts: int
    sequence: int
    value: Any


class Change(NamedTuple):
    """An alarm is raised, or is over."""

    raised: bool
    at: int
    value: Any = None


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


def matters(status: str, verdict: Verdict | None) -> bool:
    """Whether a value may change a state; when in doubt, the state itself decides."""
    match status:
        case "NORMAL":
            return verdict is Verdict.BEYOND
        case "PENDING":
            return verdict is not None and verdict is not Verdict.BEYOND
        case _:
            return verdict is Verdict.BACK


def decide(
    rule: Rule, judge: Judge, state: State, rows: Iterable[Row], now: int
) -> tuple[State, list[Change]]:
    """The state after `rows`, at `now` (ms), and the alarms on the way to it."""
    held = rule.condition.seconds * 1000 if isinstance(rule.condition, ValueCondition) else 0
    after, changes = msgspec.structs.replace(state, due=None), list[Change]()
    for row in rows:
        if (row.ts, row.sequence) <= (after.at, after.sequence):
            continue
        verdict = judge(row.value)
        if verdict is None:
            continue
        if after.status == "PENDING" and row.ts - after.since >= held:
            _hold(after, held, changes)
        if after.status == "NORMAL" and verdict is Verdict.BEYOND:
            _reach(after, row)
            after.status, after.since, after.value = "PENDING", row.ts, _short(row.value)
            if not held:
                _raise(after, row.ts, changes)
        elif after.status == "PENDING" and verdict is not Verdict.BEYOND:
            _reach(after, row)
            after.status = "NORMAL"
        elif after.status == "RAISED" and verdict is Verdict.BACK:
            _reach(after, row)
            after.status = "NORMAL"
            changes.append(Change(raised=False, at=row.ts))
    if after.status == "PENDING":
        if now - after.since >= held:
            _hold(after, held, changes)
        else:
            after.due = after.since + held
    return _look_again(state, after, now), changes


def decide_silence(
    condition: SilenceCondition, state: State, newest: int | None, now: int
) -> tuple[State, list[Change]]:
    """The same of a silence; `newest` is the time (ms) of the newest report."""
    heard = state.since if newest is None else newest
    silent_at = heard + condition.seconds * 1000
    after, changes = msgspec.structs.replace(state, due=None), list[Change]()
    if now >= silent_at and after.status == "NORMAL":
        after.at = max(silent_at, after.since)
        _raise(after, after.at, changes)
    elif now < silent_at and after.status == "RAISED":
        after.at, after.status = heard, "NORMAL"
        changes.append(Change(raised=False, at=heard))
    if after.status == "NORMAL":
        after.due = silent_at
    return _look_again(state, after, now), changes


def _look_again(before: State, after: State, now: int) -> State:
    if after.status != before.status:
        settled = now + SETTLING
        after.due = settled if after.due is None else min(after.due, settled)
    return after


def _reach(state: State, row: Row) -> None:
    state.at, state.sequence = row.ts, row.sequence


def _hold(state: State, held: int, changes: list[Change]) -> None:
    """A value has been beyond its threshold long enough."""
    state.at, state.sequence = state.since + held, 0
    _raise(state, state.at, changes)


def _raise(state: State, at: int, changes: list[Change]) -> None:
    state.status = "RAISED"
    changes.append(Change(raised=True, at=at, value=state.value))


def _short(value: Any) -> Any:
    return value[:LONGEST_VALUE] if isinstance(value, str) else value
