"""Decides what readings, events and time do to the state of a rule. No I/O.

The rule is a fold over the readings of a device in the order of their times, and over the present
time. A state keeps a checkpoint `LATE` before the newest reading, and a few newer ones up to it. A
reading that arrives out of order is folded in where it belongs, from the last checkpoint before it
on, so the state is the same as if all readings were folded again. The order of arrival, copies and
batches change nothing.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from libs.common.decoding import copy_fields
from services.device.alarms.condition_checks import LONGEST_VALUE, Judge, Verdict
from services.device.alarms.model import (
    Checkpoint,
    Rule,
    SilenceCondition,
    State,
    ValueCondition,
)

LATE = 120_000
"""ms by which a reading may be older than the newest one that arrived before it. Readings that are
older than that change nothing."""
SETTLING = 10_000
"""ms after a change until the state is evaluated again, with what `device-ingest` did not point at
because it judged by the state before. Every process knows the change after `following.PERIOD`,
or after `following.OVERLAP` when its transaction is slow; the rest is time to store a batch."""

_AGES = (LATE, *(1000 << power for power in range(6, -1, -1)), 0)
"""ms: how much older than the newest reading the checkpoints of an evaluation are."""


class Row(NamedTuple):
    """A reading of a device, or the id of an event; in order of (`ts`, `sequence`)."""

    ts: int
    """ms: when it was measured."""
    sequence: int
    """Of its message in `UPLINK`; it orders readings of one ms."""
    value: Any
    arrival: int
    """ms: when the message arrived."""


class Change(NamedTuple):
    """An alarm is raised, or is over."""

    raised: bool
    at: int
    value: Any = None


class Start(NamedTuple):
    """Where the evaluation of a state begins."""

    at: int
    """ms: the time from which it needs readings."""
    point: Checkpoint | None
    """What all readings before that time amount to; None: only the present state is known."""
    full: bool
    """Whether all readings are folded in that the state may lack."""


class Window(NamedTuple):
    """All readings from a start on that are `in_time`, in order."""

    start: Start
    rows: Sequence[Row]
    read_at: int
    """ms: when they were read."""
    complete: bool = True
    """Whether there are no newer ones."""


class _Turn(NamedTuple):
    """The readings begin to ask for an alarm, or end to."""

    at: int
    sequence: int
    raised: bool
    value: Any = None
    arrival: int = 0


def matters(status: str, verdict: Verdict | None, *, earlier: bool, lasts: bool) -> bool:
    """Return whether a reading may change the status; if not, it is not pointed at.

    `earlier` readings are older than what changed the state last. Inserted there, a value beyond
    the threshold may begin a duration earlier, and any other value may interrupt one. When a
    duration `lasts` up to the reading, the reading ends it.
    """
    match status:
        case "NORMAL":
            return verdict is Verdict.BEYOND
        case "PENDING":
            return verdict is not None and (earlier or lasts or verdict is not Verdict.BEYOND)
        case _:
            return verdict is Verdict.BACK or (earlier and verdict is Verdict.BETWEEN)


def floor_of(state: State) -> int:
    """Return the time (ms) before which readings change nothing any more."""
    if state.checkpoint is not None:
        return state.checkpoint.until
    return state.since if state.status == "RAISED" else state.at


def start_of(state: State, oldest: int, earliest: int, now: int) -> Start:
    """Return where to begin at `now` (ms), to fold in readings from `oldest` (ms) on.

    `oldest` is 0 for all readings that the state may lack. `earliest` is the time of the oldest
    reading that may not be evaluated yet. When that is newer than all that was evaluated, it
    continues the present state, which the readings in between have not changed: they were not
    pointed at. That holds only when the last change of the state has settled.
    """
    is_newer = earliest - LATE > max(state.newest, state.at)
    if is_newer and state.settles is None and _is_settled(state, now):
        return Start(earliest - LATE, _present(state, earliest - LATE), full=True)
    for point in reversed(state.points):
        if point.until <= oldest:
            return Start(point.until, point, full=False)
    return Start(floor_of(state), state.checkpoint, full=True)


def in_time(rows: list[Row]) -> list[Row]:
    """Leave out readings that arrived when one that is more than `LATE` newer had arrived."""
    if all(one.arrival <= other.arrival for one, other in pairwise(rows)):
        return rows
    newest, late = 0, set[tuple[int, int]]()
    for row in sorted(rows, key=lambda row: (row.arrival, row.ts)):
        if row.ts < newest - LATE:
            late.add((row.ts, row.sequence))
        newest = max(newest, _age(row))
    return [row for row in rows if (row.ts, row.sequence) not in late] if late else rows


def decide(
    rule: Rule, judge: Judge, state: State, window: Window, now: int
) -> tuple[State, list[Change]]:
    """Return the state after the readings of `window`, at `now` (ms), and what changes its alarm.

    `start_of` says where the window has to begin.
    """
    condition = rule.condition
    held = condition.seconds * 1000 if isinstance(condition, ValueCondition) else 0
    if state.status == "RAISED" and state.alarm is None and not state.cleared:
        state = msgspec.structs.replace(state, cleared=state.changed)  # of a version without it
    fold, begin = _begin(state, window, held)
    known = window.rows[bisect_left(window.rows, begin) :]
    rows = [row for row in known if row.arrival >= state.begun]
    newest = max(state.newest, max(map(_age, rows), default=0), 0 if window.complete else now)
    points = [one for one in state.points if one.until < fold.point.until]
    if state.checkpoint is not None and state.checkpoint.until < fold.point.until:
        points.insert(0, state.checkpoint)
    points.append(window.start.point or msgspec.structs.replace(fold.point))
    left = [newest - age for age in (_AGES if window.complete else _AGES[:1])]
    left = [at for at in left if at > fold.point.until]
    for row in rows:
        while left and row.ts >= left[0]:
            points.append(msgspec.structs.replace(fold.point, until=left.pop(0)))
        fold.add(row, judge(row.value))
    points += [msgspec.structs.replace(fold.point, until=at) for at in left]
    due = fold.end(now)
    point, changes = fold.point, fold.changes()
    at, sequence = max((state.at, state.sequence), (point.at, point.sequence))
    if window.start.full or state.settles is None:
        points = points[sum(one.until <= newest - LATE for one in points[1:]) :]
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
        points=_thinned(points[1:], newest),
        due=due,
    )
    return _look_again(state, after, window), changes


def decide_by_pointers(
    rule: Rule, judge: Judge, state: State, rows: Sequence[Row], now: int
) -> tuple[State, list[Change]]:
    """Decide for a device that keeps no history, by the readings that were pointed at alone.

    They continue the present state; earlier readings cannot be folded again.
    """
    known = msgspec.structs.replace(state, checkpoint=None, points=[])
    window = Window(Start(floor_of(known), None, full=True), rows, now)
    after, changes = decide(rule, judge, known, window, now)
    after.checkpoint, after.points = None, []
    return after, changes


def decide_silence(
    condition: SilenceCondition, state: State, newest: int | None, now: int
) -> tuple[State, list[Change]]:
    """The same of a silence; `newest` is when the last report arrived (ms)."""
    heard = state.since if newest is None else newest
    silent_at = heard + condition.seconds * 1000
    after, changes = msgspec.structs.replace(state, due=None), list[Change]()
    if after.status == "RAISED" and (now < silent_at or heard >= after.at):
        after.at, after.status = heard, "NORMAL"
        changes.append(Change(raised=False, at=heard))
    if now >= silent_at and after.status == "NORMAL":
        after.at, after.status = max(silent_at, after.since), "RAISED"
        changes.append(Change(raised=True, at=after.at))
    if after.status == "NORMAL":
        after.due = silent_at
    if _has_moved(state, after):
        after.due = min(after.due or now + SETTLING, now + SETTLING)
    return after, changes


def is_unchanged(before: State, after: State) -> bool:
    """Return whether nothing has changed but up to where readings were folded in."""
    progress = {
        "newest": before.newest,
        "checkpoint": before.checkpoint,
        "points": before.points,
    }
    return msgspec.structs.replace(after, **progress) == before


@dataclass(slots=True)
class _Fold:
    """Carries a point over readings."""

    state: State
    point: Checkpoint
    held: int
    """ms for which a value has to be beyond the threshold."""
    turns: list[_Turn] = field(default_factory=list)

    def add(self, row: Row, verdict: Verdict | None) -> None:
        """Fold one reading in."""
        point = self.point
        if verdict is None:
            return
        if point.status == "PENDING" and row.ts - point.since >= self.held:
            self._hold()
        if verdict is Verdict.BEYOND:
            self._beyond(row)
        elif point.status == "PENDING" or (point.status == "RAISED" and verdict is Verdict.BACK):
            if point.status == "RAISED":
                self.turns.append(_Turn(row.ts, row.sequence, raised=False))
            point.status, point.at, point.sequence = "NORMAL", row.ts, row.sequence

    def end(self, now: int) -> int | None:
        """Let the present time (ms) end a duration, or return when it will.

        Readings arrive with a delay, and those that interrupt it are given the same delay.
        """
        point = self.point
        if point.status != "PENDING":
            return None
        due = max(point.since, point.arrival) + self.held
        if now < due:
            return due
        self._hold()
        return None

    def changes(self) -> list[Change]:
        """Return what happens to the alarm: in the end it is open as the readings say.

        Turns up to the newest one that was known are not repeated: people have seen their alarms.
        """
        state, point = self.state, self.point
        changes, is_open = list[Change](), state.alarm is not None
        for turn in self.turns:
            if turn[:2] <= (state.at, state.sequence) or turn.raised == is_open:
                continue
            if not (turn.raised and _is_cleared(state, turn.arrival)):
                changes.append(Change(turn.raised, turn.at, turn.value))
                is_open = turn.raised
        wanted = point.status == "RAISED" and not _is_cleared(state, point.arrival)
        if wanted != is_open:
            changes.append(Change(wanted, point.at, point.value if wanted else None))
        return changes

    def _beyond(self, row: Row) -> None:
        point = self.point
        if self.state.momentary and _is_cleared(self.state, row.arrival):
            return
        if point.status == "NORMAL":
            point.status, point.since, point.value = "PENDING", row.ts, _short(row.value)
            point.arrival, point.at, point.sequence = row.arrival, row.ts, row.sequence
            if not self.held:
                self._raise()
        elif row.arrival < point.arrival:
            point.arrival = row.arrival
            if point.status == "RAISED" and self.turns:
                self.turns[-1] = self.turns[-1]._replace(arrival=row.arrival)

    def _hold(self) -> None:
        """A value has been beyond its threshold long enough."""
        self.point.at, self.point.sequence = self.point.since + self.held, 0
        self._raise()

    def _raise(self) -> None:
        point = self.point
        point.status = "RAISED"
        turn = _Turn(point.at, point.sequence, raised=True)
        self.turns.append(turn._replace(value=point.value, arrival=point.arrival))


def _begin(state: State, window: Window, held: int) -> tuple[_Fold, tuple[int, int]]:
    """Return where the fold begins, and the time (ms) and sequence of the first reading to add."""
    if window.start.point is not None:
        point = msgspec.structs.replace(window.start.point)
        if state.momentary and point.status == "RAISED" and _is_cleared(state, point.arrival):
            point.status = "NORMAL"
        return _Fold(state, point, held), (point.until, 0)
    point = _present(state, state.at)
    if held and state.status == "RAISED" and any(row.ts < state.at for row in window.rows):
        point.status, point.at, point.sequence = "PENDING", state.since, 0  # it may not have lasted
        point.until = state.since
    return _Fold(state, point, held), (point.at, point.sequence + 1)


def _thinned(points: Sequence[Checkpoint], newest: int) -> list[Checkpoint]:
    """Return the last of some checkpoints, and the oldest of each class of ages: few are young."""
    classes = {
        ((newest - point.until) // 1000).bit_length(): point for point in reversed(points[:-1])
    }
    return [*reversed(classes.values()), *points[-1:]]


def _present(state: State, until: int) -> Checkpoint:
    return copy_fields(Checkpoint, state, until=until)


def _age(row: Row) -> int:
    """The time of a reading; one of a clock that is ahead does not make what follows late."""
    return min(row.ts, row.arrival)


def _is_settled(state: State, now: int) -> bool:
    """Whether every process knew of the last change long enough before `now` (ms)."""
    return now - state.changed >= SETTLING


def _is_cleared(state: State, arrival: int) -> bool:
    """Whether people cleared the alarm when a reading had arrived (ms)."""
    return bool(state.cleared) and arrival <= state.cleared


def _look_again(before: State, after: State, window: Window) -> State:
    """Say when the state has to be evaluated from its checkpoint on."""
    now, full = window.read_at, window.start.full and window.complete
    settled = _is_settled(before, now)
    if full and (settled or (before.settles or 0) <= now):
        after.settles = None
    if after.settles is None and (_has_moved(before, after) or (full and not settled)):
        after.settles = now + SETTLING
    after.due = min((at for at in (after.due, after.settles) if at is not None), default=None)
    return after


def _has_moved(before: State, after: State) -> bool:
    """Whether the status has changed, so that readings were judged by another one."""
    moved = (after.status, after.at) != (before.status, before.at)
    return moved and {before.status, after.status} != {"NORMAL"}


def _short(value: Any) -> Any:
    return value[:LONGEST_VALUE] if isinstance(value, str) else value
