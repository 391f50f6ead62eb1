"""Generated sequences of readings, compared with a plain computation: 2,000, and 10,000 if slow."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from services.device.alarms.decision import (
    AlarmTransition,
    ReadingWindow,
    TimedValue,
    decide,
    decide_silence,
    differs_in_progress_only,
    drop_late_readings,
    earliest_relevant_ms,
    find_fold_start,
)
from services.device.alarms.model import (
    EventCondition,
    Rule,
    SilenceCondition,
    State,
    from_document,
    new_state,
    to_document,
)
from services.device.alarms.rule_index import CompiledRule, RuleIndex, compile_rule
from tests.unit.device.alarms.sequences import FIRST, Clear, Reading, Sequence, expected, generate

SEQUENCES, PARTS, QUICK_PARTS = 10_000, 10, 2


@dataclass
class Replica:
    """Ingest and evaluation without storage."""

    compiled: CompiledRule
    state: State
    index: RuleIndex = field(init=False)
    history: list[TimedValue] = field(default_factory=list)
    pointed: list[TimedValue] = field(default_factory=list)
    """Those that are not evaluated yet."""
    alarms: list[list[Any]] = field(default_factory=list)
    """When each was raised and is over."""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Drop everything that is not stored."""
        self.state = from_document(to_document(self.state), State)
        self.index = RuleIndex()
        self.index.put(self.compiled.rule)
        self.index.set_state(self.state)

    def arrive(self, reading: Reading) -> None:
        """Store a reading, and request an evaluation if it matters."""
        row, about = TimedValue(*reading), ("t", 5, "p")
        self.history.append(row)
        self.history.sort(key=lambda row: row[:2])
        if isinstance(self.compiled.rule.condition, EventCondition):
            found = list(self.index.find_changes_by_event(about, reading.value, reading.ts))
        else:
            found = list(self.index.find_changes_by_report(about, {"t": reading.value}, reading.ts))
        if found:
            self.index.mark_uncertain_and_get_earliest(found[0], 5, until=1.0, ts=reading.ts)
            self.pointed.append(row)

    def evaluate(self, now: int) -> None:
        """Evaluate requested readings, or a due state."""
        earliest = min((row.ts for row in self.pointed), default=0)
        heard, self.pointed = self.pointed, []
        if heard and all(row.ts < earliest_relevant_ms(self.state) for row in heard):
            return
        is_full = not heard and self.state.settles is not None and self.state.settles <= now
        start = find_fold_start(self.state, earliest or (0 if is_full else now), earliest, now)
        rows = drop_late_readings([row for row in self.history if row.ts >= start.at])
        rule, check = self.compiled.rule, self.compiled.check
        self._store(*decide(rule, check, self.state, ReadingWindow(start, rows, now), now), now)
        self.index.expire_uncertain_states(2.0)

    def look_at_silence(self, condition: SilenceCondition, now: int) -> None:
        """Evaluate a silence."""
        newest = max((row.arrival for row in self.history), default=None)
        self._store(*decide_silence(condition, self.state, newest, now), now)

    def sweep(self, until: int) -> None:
        """Evaluate the state when it is due."""
        while self.state.due is not None and self.state.due <= until:
            if isinstance(self.compiled.rule.condition, SilenceCondition):
                self.look_at_silence(self.compiled.rule.condition, self.state.due)
            else:
                self.evaluate(max(self.state.due, self.state.changed))

    def clear(self, now: int) -> bool:
        """Clear the alarm as a user does."""
        if self.state.alarm is None:
            return False
        self.alarms[-1][1] = now
        self.state.alarm, self.state.cleared = None, now
        if self.state.momentary:
            self.state.status = "NORMAL"
        self.index.set_state(self.state)
        return True

    def _store(self, after: State, changes: list[AlarmTransition], now: int) -> None:
        if differs_in_progress_only(self.state, after):
            assert not changes
            return
        self.state, after.changed = after, now
        for change in changes:
            assert change.raised == (after.alarm is None)
            if change.raised:
                self.alarms.append([change.at, None])
            else:
                self.alarms[-1][1] = max(change.at, self.alarms[-1][0])
            after.alarm = len(self.alarms) if change.raised else None
        self.index.set_state(after)


def replica_of(sequence: Sequence) -> Replica:
    rule = Rule(
        id=1, tenant="t", name="r", severity="MAJOR", product="p", condition=sequence.condition,
        created_at=0, updated_at=0, changed=0,
    )  # fmt: skip
    state = new_state(rule, 5)
    if isinstance(sequence.condition, SilenceCondition):
        state.since = state.due = FIRST
    return Replica(compile_rule(rule), state)


def check(seed: int) -> None:
    """Run a sequence, and compare after each evaluation and at the end."""
    sequence = generate(seed)
    replica, arrived, clears = replica_of(sequence), list[Reading](), list[int]()
    silence = sequence.condition if isinstance(sequence.condition, SilenceCondition) else None
    for number, step in enumerate(sequence.steps):
        if number in sequence.restarts:
            replica.restart()
        if isinstance(step, Clear):
            replica.sweep(step.arrival)
            compare(seed, sequence, replica, arrived, clears, step.arrival)
            if replica.clear(step.arrival):
                clears.append(step.arrival)
            continue
        for reading in step:
            if silence is not None and sequence.in_order and arrived:
                replica.sweep(reading.arrival)
            if silence is not None and not arrived:
                replica.state.since = replica.state.due = reading.arrival
            replica.arrive(reading)
            arrived.append(reading)
            if silence is not None and sequence.in_order:
                replica.look_at_silence(silence, reading.arrival)
        if silence is not None:
            replica.look_at_silence(silence, step[-1].arrival)
        elif replica.pointed:
            replica.evaluate(step[-1].arrival)
        replica.sweep(step[-1].arrival)
        compare(seed, sequence, replica, arrived, clears, step[-1].arrival)
    replica.sweep(sequence.end)
    compare(seed, sequence, replica, arrived, clears, sequence.end)


def compare(
    seed: int,
    sequence: Sequence,
    replica: Replica,
    arrived: list[Reading],
    clears: list[int],
    now: int,
) -> None:
    wanted = expected(sequence.condition, arrived, clears, now)
    found = replica.state.status, replica.state.alarm is not None
    assert found == (wanted.status, wanted.is_open), (seed, now, sequence)
    if sequence.in_order and not clears:
        assert list(map(tuple, replica.alarms)) == wanted.alarms, (seed, now, sequence)


@pytest.mark.parametrize(
    "part",
    [
        *range(QUICK_PARTS),
        *(pytest.param(part, marks=pytest.mark.slow) for part in range(QUICK_PARTS, PARTS)),
    ],
)
def test_a_state_equals_a_fold_over_all_readings(part: int) -> None:
    """The state equals a fold over all readings, in any order and batches."""
    for seed in range(part, SEQUENCES, PARTS):
        check(seed)
