"""Decisions of a rule: how readings, events and time change its state. No I/O.

A rule is a fold over the readings of a device in the order of their times, and over the present
time. A state keeps a checkpoint `LATE_MS` before the newest reading, and a few newer ones. A
reading that arrives out of order is folded in from the last checkpoint before it, so the state
equals a fold over all readings. Order of arrival, copies and batches do not matter.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from libs.common.decoding import copy_fields
from services.device.alarms.condition_checks import MAX_SHOWN_CHARACTERS, ConditionCheck, Verdict
from services.device.alarms.model import (
    Checkpoint,
    Rule,
    SilenceCondition,
    State,
    ValueCondition,
)

LATE_MS = 120_000
"""Maximum age of an arriving reading relative to the newest reading.

Older readings change nothing.
"""
SETTLING_MS = 10_000
"""Time after a change until the state is evaluated again.

Ingest may have matched readings with the state before the change, and requested no evaluation. Each
process knows a change after `trigger.MAX_INDEX_AGE_SECONDS`, or `trigger.REREAD_OVERLAP_MS` when
its transaction is slow. The rest is time to store a batch.
"""

_CHECKPOINT_AGES_MS = (LATE_MS, *(1000 << power for power in range(6, -1, -1)), 0)
"""Ages of checkpoints relative to the newest reading, ms."""


class TimedValue(NamedTuple):
    """A reading of a property, or the id of an event, ordered by `ts` and `sequence`."""

    ts: int
    """When it was measured, ms."""
    sequence: int
    """Sequence of its message in `UPLINK`; it orders readings of the same ms."""
    value: Any
    arrival: int
    """When the message arrived, ms."""


class AlarmTransition(NamedTuple):
    """The raising or clearing of an alarm."""

    raised: bool
    at: int
    value: Any = None


class FoldStart(NamedTuple):
    """The time and checkpoint from which an evaluation folds readings."""

    at: int
    """Time from which readings are needed, ms."""
    point: Checkpoint | None
    """The checkpoint at this time; None means only the present state is known."""
    full: bool
    """Whether the fold includes all readings that are possibly not evaluated yet."""


class ReadingWindow(NamedTuple):
    """The readings that an evaluation folds, in order, without late ones."""

    start: FoldStart
    rows: Sequence[TimedValue]
    read_at: int
    """When the readings were read from history, ms."""
    complete: bool = True
    """Whether history has no newer readings."""


class _StatusChange(NamedTuple):
    """A change of the status to RAISED or NORMAL that readings cause."""

    at: int
    sequence: int
    raised: bool
    value: Any = None
    arrival: int = 0


def may_change_status(
    status: str, verdict: Verdict | None, *, earlier: bool, duration_ended: bool
) -> bool:
    """Return whether a reading may change the status; if not, ingest ignores it.

    `earlier` readings are older than the last change. A value beyond the threshold may then start a
    duration earlier, and another value may interrupt one. `duration_ended` means that the duration
    of a pending alarm ended before this reading.
    """
    match status:
        case "NORMAL":
            return verdict is Verdict.BEYOND
        case "PENDING":
            return verdict is not None and (
                earlier or duration_ended or verdict is not Verdict.BEYOND
            )
        case _:
            return verdict is Verdict.BACK or (earlier and verdict is Verdict.BETWEEN)


def earliest_relevant_ms(state: State) -> int:
    """Return the time (ms) before which readings change nothing."""
    if state.checkpoint is not None:
        return state.checkpoint.until
    return state.since if state.status == "RAISED" else state.at


def find_fold_start(state: State, oldest: int, earliest_unevaluated: int, now: int) -> FoldStart:
    """Return where the fold begins, so that it includes readings from `oldest` (ms) on.

    `oldest` is 0 if any reading may be missing in the state. `earliest_unevaluated` is the time
    (ms) of the oldest reading that is possibly not evaluated yet. If this time is newer than all
    evaluated readings, the fold continues the present state, because ingest found that the readings
    before it change nothing. This holds only `SETTLING_MS` after the last change of the state.
    """
    at = earliest_unevaluated - LATE_MS
    is_newer = at > max(state.newest, state.at)
    if is_newer and state.settles is None and _is_settled(state, now):
        return FoldStart(at, _current_checkpoint(state, at), full=True)
    for point in reversed(state.points):
        if point.until <= oldest:
            return FoldStart(point.until, point, full=False)
    return FoldStart(earliest_relevant_ms(state), state.checkpoint, full=True)


def drop_late_readings(rows: list[TimedValue]) -> list[TimedValue]:
    """Return readings without those over `LATE_MS` older than a reading that arrived before."""
    if all(row.arrival <= other.arrival for row, other in pairwise(rows)):
        return rows
    newest, late = 0, set[tuple[int, int]]()
    for row in sorted(rows, key=lambda row: (row.arrival, row.ts)):
        if row.ts < newest - LATE_MS:
            late.add((row.ts, row.sequence))
        newest = max(newest, _cap_to_arrival(row))
    return [row for row in rows if (row.ts, row.sequence) not in late] if late else rows


def decide(
    rule: Rule, check: ConditionCheck, state: State, window: ReadingWindow, now: int
) -> tuple[State, list[AlarmTransition]]:
    """Return the state after the readings of `window` at `now` (ms), and transitions of its alarm.

    The window must begin at the result of `find_fold_start`.
    """
    condition = rule.condition
    duration = condition.seconds * 1000 if isinstance(condition, ValueCondition) else 0
    if state.status == "RAISED" and state.alarm is None and not state.cleared:
        state = msgspec.structs.replace(
            state, cleared=state.changed
        )  # an older version did not store `cleared`
    fold, begin = _start_fold(state, window, duration)
    known = window.rows[bisect_left(window.rows, begin) :]
    rows = [row for row in known if row.arrival >= state.begun]
    newest = max(
        state.newest, max(map(_cap_to_arrival, rows), default=0), 0 if window.complete else now
    )
    points = [point for point in state.points if point.until < fold.point.until]
    if state.checkpoint is not None and state.checkpoint.until < fold.point.until:
        points.insert(0, state.checkpoint)
    points.append(window.start.point or msgspec.structs.replace(fold.point))
    checkpoint_times = [
        newest - age
        for age in (_CHECKPOINT_AGES_MS if window.complete else _CHECKPOINT_AGES_MS[:1])
    ]
    checkpoint_times = [at for at in checkpoint_times if at > fold.point.until]
    for row in rows:
        while checkpoint_times and row.ts >= checkpoint_times[0]:
            points.append(msgspec.structs.replace(fold.point, until=checkpoint_times.pop(0)))
        fold.apply_reading(row, check(row.value))
    points += [msgspec.structs.replace(fold.point, until=at) for at in checkpoint_times]
    due = fold.raise_or_get_due_ms(now)
    point, changes = fold.point, fold.alarm_transitions()
    at, sequence = max((state.at, state.sequence), (point.at, point.sequence))
    if window.start.full or state.settles is None:
        points = points[sum(point.until <= newest - LATE_MS for point in points[1:]) :]
    after = msgspec.structs.replace(
        state,
        status=point.status,
        since=point.since,
        arrival=point.arrival,
        value=point.value,
        at=at,
        sequence=sequence,
        newest=newest,
        checkpoint=points[0],
        points=_reduce_checkpoints(points[1:], newest),
        due=due,
    )
    return _schedule_evaluation(state, after, window), changes


def decide_without_history(
    rule: Rule, check: ConditionCheck, state: State, rows: Sequence[TimedValue], now: int
) -> tuple[State, list[AlarmTransition]]:
    """Decide for a device without stored history, from the requested readings alone.

    The readings are applied to the present state, because earlier ones cannot be read again.
    """
    state_without_history = msgspec.structs.replace(state, checkpoint=None, points=[])
    window = ReadingWindow(
        FoldStart(earliest_relevant_ms(state_without_history), None, full=True), rows, now
    )
    after, changes = decide(rule, check, state_without_history, window, now)
    after.checkpoint, after.points = None, []
    return after, changes


def decide_silence(
    condition: SilenceCondition, state: State, newest: int | None, now: int
) -> tuple[State, list[AlarmTransition]]:
    """Return the state of a silence at `now` (ms); `newest` is the last arrival (ms), if any."""
    last_report = state.since if newest is None else newest
    silent_at = last_report + condition.seconds * 1000
    after, changes = msgspec.structs.replace(state, due=None), list[AlarmTransition]()
    if after.status == "RAISED" and (now < silent_at or last_report >= after.at):
        after.at, after.status = last_report, "NORMAL"
        changes.append(AlarmTransition(raised=False, at=last_report))
    if now >= silent_at and after.status == "NORMAL":
        after.at, after.status = max(silent_at, after.since), "RAISED"
        changes.append(AlarmTransition(raised=True, at=after.at))
    if after.status == "NORMAL":
        after.due = silent_at
    if _changes_indexed_state(state, after):
        after.due = min(after.due or now + SETTLING_MS, now + SETTLING_MS)
    return after, changes


def differs_in_progress_only(before: State, after: State) -> bool:
    """Return whether two states differ only in the progress of the evaluation."""
    progress = {
        "newest": before.newest,
        "checkpoint": before.checkpoint,
        "points": before.points,
    }
    return msgspec.structs.replace(after, **progress) == before


@dataclass(slots=True)
class _Fold:
    """Applies readings to a checkpoint."""

    state: State
    point: Checkpoint
    duration: int
    """How long a value must be beyond the threshold, ms."""
    transitions: list[_StatusChange] = field(default_factory=list)

    def apply_reading(self, row: TimedValue, verdict: Verdict | None) -> None:
        """Apply one reading."""
        point = self.point
        if verdict is None:
            return
        if point.status == "PENDING" and row.ts - point.since >= self.duration:
            self._raise_after_duration()
        if verdict is Verdict.BEYOND:
            self._apply_beyond(row)
        elif point.status == "PENDING" or (point.status == "RAISED" and verdict is Verdict.BACK):
            if point.status == "RAISED":
                self.transitions.append(_StatusChange(row.ts, row.sequence, raised=False))
            point.status, point.at, point.sequence = "NORMAL", row.ts, row.sequence

    def raise_or_get_due_ms(self, now: int) -> int | None:
        """Raise a pending alarm whose duration is over at `now` (ms).

        Return when an unfinished duration will be over (ms), or None. A duration begins when its
        first reading arrives, because readings that end it early arrive with a similar delay.
        """
        point = self.point
        if point.status != "PENDING":
            return None
        due = max(point.since, point.arrival) + self.duration
        if now < due:
            return due
        self._raise_after_duration()
        return None

    def alarm_transitions(self) -> list[AlarmTransition]:
        """Return the transitions after which the alarm matches the readings.

        Transitions that an earlier evaluation has published are not repeated.
        """
        state, point = self.state, self.point
        changes, is_open = list[AlarmTransition](), state.alarm is not None
        for transition in self.transitions:
            if transition[:2] <= (state.at, state.sequence) or transition.raised == is_open:
                continue
            if not (transition.raised and _is_cleared_after(state, transition.arrival)):
                changes.append(AlarmTransition(transition.raised, transition.at, transition.value))
                is_open = transition.raised
        is_raised = point.status == "RAISED" and not _is_cleared_after(state, point.arrival)
        if is_raised != is_open:
            changes.append(AlarmTransition(is_raised, point.at, point.value if is_raised else None))
        return changes

    def _apply_beyond(self, row: TimedValue) -> None:
        point = self.point
        if self.state.momentary and _is_cleared_after(self.state, row.arrival):
            return
        if point.status == "NORMAL":
            point.status, point.since = "PENDING", row.ts
            point.value = _truncate_to_shown(row.value)
            point.arrival, point.at, point.sequence = row.arrival, row.ts, row.sequence
            if not self.duration:
                self._raise_alarm()
        elif row.arrival < point.arrival:
            point.arrival = row.arrival
            if point.status == "RAISED" and self.transitions:
                self.transitions[-1] = self.transitions[-1]._replace(arrival=row.arrival)

    def _raise_after_duration(self) -> None:
        self.point.at, self.point.sequence = self.point.since + self.duration, 0
        self._raise_alarm()

    def _raise_alarm(self) -> None:
        point = self.point
        point.status = "RAISED"
        transition = _StatusChange(point.at, point.sequence, raised=True)
        self.transitions.append(transition._replace(value=point.value, arrival=point.arrival))


def _start_fold(
    state: State, window: ReadingWindow, duration: int
) -> tuple[_Fold, tuple[int, int]]:
    """Return the fold, and time (ms) and sequence of the first reading to apply."""
    if window.start.point is not None:
        point = msgspec.structs.replace(window.start.point)
        if state.momentary and point.status == "RAISED" and _is_cleared_after(state, point.arrival):
            point.status = "NORMAL"
        return _Fold(state, point, duration), (point.until, 0)
    point = _current_checkpoint(state, state.at)
    if duration and state.status == "RAISED" and any(row.ts < state.at for row in window.rows):
        point.status, point.at, point.sequence = "PENDING", state.since, 0  # it may not have lasted
        point.until = state.since
    return _Fold(state, point, duration), (point.at, point.sequence + 1)


def _reduce_checkpoints(points: Sequence[Checkpoint], newest: int) -> list[Checkpoint]:
    """Return few of the checkpoints: the newest, and the oldest of each class of age.

    A class begins at a power of two of seconds, so that few recent checkpoints are dropped.
    """
    classes = {
        ((newest - point.until) // 1000).bit_length(): point for point in reversed(points[:-1])
    }
    return [*reversed(classes.values()), *points[-1:]]


def _current_checkpoint(state: State, until: int) -> Checkpoint:
    return copy_fields(Checkpoint, state, until=until)


def _cap_to_arrival(row: TimedValue) -> int:
    """Return the time of a reading (ms), or its arrival if the clock of the device is ahead."""
    return min(row.ts, row.arrival)


def _is_settled(state: State, now: int) -> bool:
    return now - state.changed >= SETTLING_MS


def _is_cleared_after(state: State, arrival: int) -> bool:
    """Return whether a user cleared the alarm after this arrival (ms)."""
    return bool(state.cleared) and arrival <= state.cleared


def _schedule_evaluation(before: State, after: State, window: ReadingWindow) -> State:
    """Set `settles` and `due` of the state `after`, the times of later evaluations; return it."""
    now, full = window.read_at, window.start.full and window.complete
    settled = _is_settled(before, now)
    if full and (settled or (before.settles or 0) <= now):
        after.settles = None
    if after.settles is None and (_changes_indexed_state(before, after) or (full and not settled)):
        after.settles = now + SETTLING_MS
    after.due = min((at for at in (after.due, after.settles) if at is not None), default=None)
    return after


def _changes_indexed_state(before: State, after: State) -> bool:
    """Return whether the state that the rule index keeps changes: status or time."""
    moved = (after.status, after.at) != (before.status, before.at)
    return moved and {before.status, after.status} != {"NORMAL"}


def _truncate_to_shown(value: Any) -> Any:
    return value[:MAX_SHOWN_CHARACTERS] if isinstance(value, str) else value
