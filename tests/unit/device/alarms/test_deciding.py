"""What rules make of values, events and time."""

from typing import Any

import msgspec
import pytest

from services.device.alarms.deciding import (
    SETTLING,
    Change,
    Row,
    Verdict,
    decide,
    decide_silence,
    judge_of,
)
from services.device.alarms.model import (
    Condition,
    EventCondition,
    Rule,
    SilenceCondition,
    State,
    ValueCondition,
)

HOT = ValueCondition(property="t", comparison="GT", threshold=30, hysteresis=2)


def rule(condition: Condition) -> Rule:
    return Rule(
        id=1, tenant="t", name="r", severity="MAJOR", product="p", condition=condition,
        created_at=0, updated_at=0, changed=0,
    )  # fmt: skip


def fresh(**more: Any) -> State:
    return State(id="1.1.5", tenant="t", rule=1, generation=1, device=5, **more)


def run(
    condition: ValueCondition | EventCondition, state: State, *values: tuple[int, Any], now: int = 0
) -> tuple[State, list[Change]]:
    rows = [Row(ts, at, value) for at, (ts, value) in enumerate(values, 1)]
    return decide(rule(condition), judge_of(condition), state, rows, now)


@pytest.mark.parametrize(
    ("comparison", "threshold", "hysteresis", "value", "verdict"),
    [
        ("GT", 30, 2, 30.5, Verdict.BEYOND),
        ("GT", 30, 2, 30, Verdict.BETWEEN),
        ("GT", 30, 2, 28, Verdict.BACK),
        ("GTE", 30, 0, 30, Verdict.BEYOND),
        ("LT", 5, 1, 4, Verdict.BEYOND),
        ("LT", 5, 1, 5.5, Verdict.BETWEEN),
        ("LT", 5, 1, 6, Verdict.BACK),
        ("EQ", 5, 0, 5.0, Verdict.BEYOND),
        ("NE", 5, 0, 5, Verdict.BACK),
        ("EQ", True, 0, True, Verdict.BEYOND),
        ("EQ", True, 0, 1, None),
        ("EQ", "on", 0, "on", Verdict.BEYOND),
        ("EQ", "on", 0, "off", Verdict.BACK),
        ("GT", 30, 0, "40", None),
        ("GT", 30, 0, True, None),
        ("GT", 30, 0, None, None),
    ],
)
def test_a_value_is_judged(comparison, threshold, hysteresis, value, verdict):
    """Beyond the threshold, within the hysteresis, back; what is of another type says nothing."""
    condition = ValueCondition(
        property="t", comparison=comparison, threshold=threshold, hysteresis=hysteresis
    )
    assert judge_of(condition)(value) is verdict


def test_an_alarm_is_raised_once_and_clears_itself():
    """With the hysteresis; each with the time of the report."""
    state, changes = run(HOT, fresh(), (10, 20), (20, 31), (30, 29), (40, 40), (50, 28), (60, 31))
    assert changes == [Change(True, 20, 31), Change(False, 50), Change(True, 60, 31)]
    assert (state.status, state.at, state.due) == ("RAISED", 60, SETTLING)


def test_what_comes_twice_or_late_changes_nothing():
    """Rows up to the state's own are passed over; those of one ms are told apart."""
    values = (10, 31), (20, 20), (20, 35)
    state, changes = run(HOT, fresh(), *values)
    assert [change.raised for change in changes] == [True, False, True]
    again, changes = run(HOT, state, *values, (15, 20))
    assert (changes, again.status, again.at) == ([], "RAISED", 20)


def test_it_does_not_matter_in_how_many_looks():
    """One by one, each with what came before, they give what all together give."""
    values = [(at, 31 if at % 3 else 20) for at in range(1, 50)]
    _, at_once = run(HOT, fresh(), *values)
    state, one_by_one = fresh(), []
    for last in range(1, len(values) + 1):
        state, changes = run(HOT, state, *values[:last])
        one_by_one += changes
    assert one_by_one == at_once
    assert len(at_once) > 20


def test_a_duration_is_counted_from_the_first_value():
    """It raises when it has lasted, also between reports, and names the value it began with."""
    slow = msgspec.structs.replace(HOT, seconds=10)
    state, changes = run(slow, fresh(), (1_000, 31), now=5_000)
    assert (state.status, state.due, changes) == ("PENDING", 11_000, [])
    over, changes = run(slow, state, (9_000, 29.5), now=9_000)
    assert (over.status, changes) == ("NORMAL", [])
    raised, changes = run(slow, state, now=12_000)
    assert (raised.status, changes) == ("RAISED", [Change(True, 11_000, 31)])
    _, changes = run(slow, state, (15_000, 20), now=16_000)
    assert changes == [Change(True, 11_000, 31), Change(False, 15_000)]


def test_events_raise_and_end():
    """The same event does nothing more while the alarm is there."""
    leak = EventCondition(event="leak", ended_by="dry")
    _, changes = run(leak, fresh(), (1, "dry"), (2, "leak"), (3, "leak"), (4, "other"), (5, "dry"))
    assert changes == [Change(True, 2, "leak"), Change(False, 5)]


def test_a_silence_begins_and_ends():
    """It is counted from the newest report, without one from when it began to be watched."""
    silence = SilenceCondition(seconds=60)
    state, changes = decide_silence(silence, fresh(since=5_000), None, 6_000)
    assert (state.due, changes) == (65_000, [])
    state, changes = decide_silence(silence, state, 30_000, 65_000)
    assert (state.status, state.due, changes) == ("NORMAL", 90_000, [])
    state, changes = decide_silence(silence, state, 30_000, 95_000)
    assert (state.status, changes) == ("RAISED", [Change(True, 90_000)])
    same, changes = decide_silence(silence, state, 30_000, 97_000)
    assert (same.status, changes) == ("RAISED", [])
    state, changes = decide_silence(silence, same, 99_000, 99_500)
    assert (state.status, changes) == ("NORMAL", [Change(False, 99_000)])


def test_a_silence_that_was_there_before_its_rule_begins_with_it():
    """A device that has not reported for days is silent since the rule is there."""
    silence = SilenceCondition(seconds=60)
    _, changes = decide_silence(silence, fresh(since=900_000), 1_000, 900_500)
    assert changes == [Change(True, 900_000)]
