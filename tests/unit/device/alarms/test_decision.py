"""Decisions of rules on values, events and time."""

from typing import Any

import msgspec
import pytest

from services.device.alarms.condition_checks import Verdict, compile_check
from services.device.alarms.decision import (
    LATE_MS,
    SETTLING_MS,
    AlarmTransition,
    ReadingWindow,
    TimedValue,
    decide,
    decide_silence,
    decide_without_history,
    drop_late_readings,
    earliest_relevant_ms,
    find_fold_start,
)
from services.device.alarms.model import (
    EventCondition,
    Rule,
    RuleCondition,
    SilenceCondition,
    State,
    ValueCondition,
)

HOT = ValueCondition(property="t", comparison="GT", threshold=30, hysteresis=2)


def rule(condition: RuleCondition) -> Rule:
    return Rule(
        id=1, tenant="t", name="r", severity="MAJOR", product="p", condition=condition,
        created_at=0, updated_at=0, changed=0,
    )  # fmt: skip


def fresh(**more: Any) -> State:
    return State(id="1.1.5", tenant="t", rule=1, generation=1, device=5, **more)


def run(
    condition: ValueCondition | EventCondition, state: State, *values: tuple[int, Any], now: int = 0
) -> tuple[State, list[AlarmTransition]]:
    rows = [TimedValue(ts, at, value, ts) for at, (ts, value) in enumerate(values, 1)]
    window = ReadingWindow(find_fold_start(state, 0, 0, now), drop_late_readings(sorted(rows)), now)
    after, changes = decide(rule(condition), compile_check(condition), state, window, now)
    for change in changes:
        after.alarm = 1 if change.raised else None
    return after, changes


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
def test_a_value_is_compared_with_the_condition(comparison, threshold, hysteresis, value, verdict):
    """A value is beyond the threshold, within the hysteresis, or back; other types do not count."""
    condition = ValueCondition(
        property="t", comparison=comparison, threshold=threshold, hysteresis=hysteresis
    )
    assert compile_check(condition)(value) is verdict


def test_an_alarm_is_raised_once_and_clears_itself():
    """An alarm is raised and cleared once, at the times of the readings."""
    state, changes = run(HOT, fresh(), (10, 20), (20, 31), (30, 29), (40, 40), (50, 28), (60, 31))
    assert changes == [
        AlarmTransition(True, 20, 31),
        AlarmTransition(False, 50),
        AlarmTransition(True, 60, 31),
    ]
    assert (state.status, state.at, state.due) == ("RAISED", 60, SETTLING_MS)


def test_repeated_readings_change_nothing():
    """Repeated readings change nothing."""
    values = (10, 31), (20, 20), (20, 35)
    state, changes = run(HOT, fresh(), *values)
    assert [change.raised for change in changes] == [True, False, True]
    again, changes = run(HOT, state, *values)
    assert (changes, again.status, again.at) == ([], "RAISED", 20)


def test_a_late_reading_counts_at_its_own_time():
    """A late reading may clear an alarm at a time after it was raised."""
    slow = msgspec.structs.replace(HOT, seconds=60)
    state, changes = run(slow, fresh(), (1_000, 31), now=61_000)
    assert changes == [AlarmTransition(True, 61_000, 31)]
    state, changes = run(slow, state, (1_000, 31), (30_000, 20), now=70_000)
    assert (state.status, changes) == ("NORMAL", [AlarmTransition(False, 30_000)])
    state, changes = run(slow, state, (1_000, 31), (30_000, 20), (40_000, 31), now=71_000)
    assert (state.status, state.due, changes) == ("PENDING", 81_000, [])


def test_only_readings_of_the_last_two_minutes_are_folded_in_again():
    """A reading counts if it is at most two minutes older than an earlier arrival."""
    newest = TimedValue(500_000, 1, 20, 500_000)
    just = TimedValue(newest.ts - LATE_MS, 2, 31, 500_001)
    late = TimedValue(newest.ts - LATE_MS - 1, 3, 31, 500_001)
    early = TimedValue(late.ts, 4, 31, 499_999)
    assert drop_late_readings([early, late, just, newest]) == [early, just, newest]


def test_a_clock_that_is_ahead_makes_no_other_reading_late():
    """A reading from the future counts as one of its arrival time."""
    ahead, following = TimedValue(400_000, 1, 31, 100_000), TimedValue(101_000, 2, 20, 101_000)
    assert drop_late_readings([following, ahead]) == [following, ahead]


def test_hours_that_were_evaluated_are_not_read_again():
    """A newer reading continues the state once the last change has settled."""
    hour = 3_600_000
    state, _ = run(HOT, fresh(), (hour, 31), now=hour)
    state.changed = hour
    assert earliest_relevant_ms(state) == hour - LATE_MS
    assert find_fold_start(state, 2 * hour, 2 * hour, hour + SETTLING_MS).at == hour
    state.settles = None
    assert find_fold_start(state, 2 * hour, 2 * hour, hour + SETTLING_MS).at == 2 * hour - LATE_MS
    assert find_fold_start(state, 2 * hour, 2 * hour, hour + SETTLING_MS - 1).at == hour
    assert find_fold_start(state, hour + LATE_MS, hour + LATE_MS, hour + SETTLING_MS).at == hour
    assert (
        find_fold_start(state, hour - 10_000, hour - 10_000, hour + SETTLING_MS).at == hour - 16_000
    )
    assert find_fold_start(state, 0, 0, hour + SETTLING_MS).at == hour - LATE_MS


def test_a_change_is_evaluated_again_from_the_checkpoint_once_it_has_settled():
    """Evaluations in between neither drop nor postpone the second evaluation."""
    state, _ = run(HOT, fresh(), (100_000, 20), (200_000, 31), now=200_000)
    state.changed = 200_000
    assert (state.settles, state.due) == (200_000 + SETTLING_MS, 200_000 + SETTLING_MS)
    start = find_fold_start(state, 205_000, 205_000, 205_000)
    assert not start.full
    rows = [TimedValue(200_000, 2, 31, 200_000), TimedValue(205_000, 3, 20, 205_000)]
    after, _ = decide(
        rule(HOT), compile_check(HOT), state, ReadingWindow(start, rows, 205_000), 205_000
    )
    assert (after.status, after.due, after.checkpoint) == ("NORMAL", state.due, state.checkpoint)
    late = TimedValue(201_000, 4, 20, 204_000)
    rows, start = sorted([*rows, late]), find_fold_start(after, 0, 0, 210_000)
    final, _ = decide(
        rule(HOT), compile_check(HOT), after, ReadingWindow(start, rows, 215_000), 215_000
    )
    assert (start.at, final.settles) == (80_000, None)


def test_an_evaluation_begins_at_the_last_checkpoint_before_its_oldest_reading():
    """Few checkpoints are kept, and recent ones are closer together."""
    state = fresh()
    for at in range(1_000_000, 1_300_000, 100):
        row = TimedValue(at, at, 31 if at % 200 else 20, at)
        start = find_fold_start(state, at, at, at)
        state, _ = decide(rule(HOT), compile_check(HOT), state, ReadingWindow(start, [row], at), at)
        state.changed = at
    assert len(state.points) <= 12
    for age in (0, 1_000, 10_000, 60_000):
        start = find_fold_start(state, state.newest - age, state.newest - age, state.newest)
        assert age <= state.newest - start.at <= 4 * age + 1_000


def test_a_duration_that_the_clock_has_ended_may_be_interrupted_later():
    """A reading from before the end of a duration interrupts it."""
    slow = msgspec.structs.replace(HOT, seconds=600)
    state, changes = run(slow, fresh(), (1_000, 31), now=601_000)
    assert [change.raised for change in changes] == [True]
    assert find_fold_start(state, 500_000, 500_000, 5_000_000).at == 1_000
    state, changes = run(slow, state, (1_000, 31), (500_000, 29), now=5_000_000)
    assert (state.status, [change.raised for change in changes]) == ("NORMAL", [False])


def test_a_device_without_history_is_evaluated_by_requested_readings():
    """Without history, requested readings continue the present state."""
    slow = msgspec.structs.replace(HOT, seconds=60)
    rows = [TimedValue(1_000, 1, 31, 1_000)]
    arguments = rule(slow), compile_check(slow)
    state, _ = decide_without_history(*arguments, fresh(), rows, 2_000)
    state, changes = decide_without_history(*arguments, state, [], 61_000)
    assert (state.status, changes) == ("RAISED", [AlarmTransition(True, 61_000, 31)])
    state.alarm = 1
    same, changes = decide_without_history(
        *arguments, state, [TimedValue(62_000, 2, 32, 62_000)], 62_000
    )
    assert (same.status, changes) == ("RAISED", [])
    state, changes = decide_without_history(
        *arguments, state, [TimedValue(30_000, 3, 20, 63_000)], 63_000
    )
    assert (state.status, changes) == ("NORMAL", [AlarmTransition(False, 30_000)])


def test_states_of_earlier_versions_continue():
    """A state without a checkpoint continues, and a cleared alarm stays cleared."""
    raised = fresh(status="RAISED", at=10_000, sequence=3, since=10_000, value=31, alarm=1)
    _, changes = run(HOT, raised, (9_000, 20), (11_000, 31), (12_000, 20), now=12_000)
    assert changes == [AlarmTransition(False, 12_000)]
    cleared = msgspec.structs.replace(raised, alarm=None, changed=50_000)
    same, changes = run(HOT, cleared, (11_000, 31), now=12_000)
    assert (same.status, changes) == ("RAISED", [])
    _, changes = run(HOT, same, (11_000, 31), (60_000, 20), (61_000, 31), now=61_000)
    assert changes == [AlarmTransition(True, 61_000, 31)]


def test_what_arrived_before_a_rule_does_not_count():
    """Readings that arrived before the rule was created do not count."""
    state, changes = run(HOT, fresh(begun=20_000), (10_000, 31), (20_000, 29), now=20_000)
    assert (state.status, changes) == ("NORMAL", [])


def test_the_number_of_evaluations_does_not_matter():
    """One evaluation per reading gives the same result as one evaluation of all."""
    values = [(at, 31 if at % 3 else 20) for at in range(1, 50)]
    _, at_once = run(HOT, fresh(), *values)
    state, one_by_one = fresh(), []
    for last in range(1, len(values) + 1):
        state, changes = run(HOT, state, *values[:last])
        one_by_one += changes
    assert one_by_one == at_once
    assert len(at_once) > 20


def test_a_duration_is_counted_from_the_first_value():
    """A duration also ends between reports, and the alarm has its first value."""
    slow = msgspec.structs.replace(HOT, seconds=10)
    state, changes = run(slow, fresh(), (1_000, 31), now=5_000)
    assert (state.status, state.due, changes) == ("PENDING", 11_000, [])
    over, changes = run(slow, state, (9_000, 29.5), now=9_000)
    assert (over.status, changes) == ("NORMAL", [])
    raised, changes = run(slow, state, (1_000, 31), now=12_000)
    assert (raised.status, changes) == ("RAISED", [AlarmTransition(True, 11_000, 31)])
    _, changes = run(slow, state, (1_000, 31), (15_000, 20), now=16_000)
    assert changes == [AlarmTransition(True, 11_000, 31), AlarmTransition(False, 15_000)]


def test_events_raise_and_clear_an_alarm():
    """A repeated event does not raise a second alarm."""
    leak = EventCondition(event="leak", ended_by="dry")
    _, changes = run(leak, fresh(), (1, "dry"), (2, "leak"), (3, "leak"), (4, "other"), (5, "dry"))
    assert changes == [AlarmTransition(True, 2, "leak"), AlarmTransition(False, 5)]


def test_a_silence_begins_and_ends():
    """A silence counts from the newest report, or from when it was first watched."""
    silence = SilenceCondition(seconds=60)
    state, changes = decide_silence(silence, fresh(since=5_000), None, 6_000)
    assert (state.due, changes) == (65_000, [])
    state, changes = decide_silence(silence, state, 30_000, 65_000)
    assert (state.status, state.due, changes) == ("NORMAL", 90_000, [])
    state, changes = decide_silence(silence, state, 30_000, 95_000)
    assert (state.status, changes) == ("RAISED", [AlarmTransition(True, 90_000)])
    same, changes = decide_silence(silence, state, 30_000, 97_000)
    assert (same.status, changes) == ("RAISED", [])
    state, changes = decide_silence(silence, same, 99_000, 99_500)
    assert (state.status, changes) == ("NORMAL", [AlarmTransition(False, 99_000)])


def test_a_silence_that_ended_and_began_again_is_two_alarms():
    """Two silences are two alarms, even if both are evaluated at once."""
    silence = SilenceCondition(seconds=60)
    state, _ = decide_silence(silence, fresh(since=5_000), None, 65_000)
    state, changes = decide_silence(silence, state, 70_000, 200_000)
    assert changes == [AlarmTransition(False, 70_000), AlarmTransition(True, 130_000)]
    assert (state.status, state.at) == ("RAISED", 130_000)


def test_a_silence_begins_no_earlier_than_its_rule():
    """A silence begins no earlier than its rule."""
    silence = SilenceCondition(seconds=60)
    _, changes = decide_silence(silence, fresh(since=900_000), 1_000, 900_500)
    assert changes == [AlarmTransition(True, 900_000)]
