"""Evaluations of states that are to be done, and the decision of one."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from opentelemetry import metrics

from services.device.alarms.deciding import (
    Row,
    Start,
    Window,
    continued,
    decide,
    decide_by_pointers,
    decide_silence,
    floor_of,
    in_time,
    is_unchanged,
    start_of,
)
from services.device.alarms.index import Compiled
from services.device.alarms.messages import Pointer
from services.device.alarms.model import SilenceCondition, State, fresh_state
from services.device.alarms.rows import HistoryCondition, Stored, have_all, merged, rows_of
from services.device.alarms.store import CHUNK, Decision
from services.device.alarms.unstored import Unstored

MOST_ROWS = 100_000
"""Rows of a device that are held at a time, but for those of the last two minutes."""
FOLDED = 500
"""Readings that are not folded in again: a state that has folded so many is written."""

_late = metrics.get_meter("thingway").create_counter(
    "thingway_alarm_readings_late",
    description="Readings that came too late to change an alarm",
)


@dataclass(slots=True)
class Look:
    """A rule and a device whose state has to be evaluated."""

    compiled: Compiled
    state: State
    """As it was read last."""
    oldest: int = 0
    """ms: the time of the oldest reading to fold in; 0 is any that the state may lack."""
    earliest: int = 0
    """ms: the time of the oldest reading that may not be evaluated yet; 0: nobody knows."""
    heard: list[Row] = field(default_factory=list)
    """The readings that were pointed at."""
    start: Start | None = None
    """Where to begin, once it is known."""

    def begin(self, now: int) -> int:
        """Return the time (ms) from which readings are needed, at `now` (ms)."""
        if self.start is None:
            self.start = start_of(self.state, self.oldest, self.earliest, now)
        return self.start.at

    def is_late(self) -> bool:
        """Drop the readings that change nothing any more; return whether no other is left.

        Any report ends a silence, however old it is.
        """
        if isinstance(self.compiled.rule.condition, SilenceCondition):
            return False
        floor = floor_of(self.state)
        late = [row for row in self.heard if row.ts < floor]
        _late.add(sum(row.arrival > self.state.changed for row in late))
        self.heard = [row for row in self.heard if row.ts >= floor]
        return bool(late) and not self.heard


class _Readings(NamedTuple):
    """The readings that a rule looks at, in order."""

    rows: list[Row]
    in_time: Sequence[Row]


@dataclass(slots=True)
class DeviceLooks:
    """The looks at one device that share what is read of it: values, events, or its silence."""

    device: int
    sn: str
    looks: list[Look]
    stored: list[Stored] = field(default_factory=list)
    """Rows of history, since where the looks begin."""
    read_to: tuple[int, int] | None = None
    """Time (ms) and sequence of the newest row that was read."""
    complete: bool = True
    """Whether history has no newer ones."""
    waits: bool = False
    """Whether something that is not stored yet has to be waited for."""

    @property
    def is_of_silence(self) -> bool:
        """Whether the looks are about when the device reported last."""
        return isinstance(self.looks[0].compiled.rule.condition, SilenceCondition)

    @property
    def conditions(self) -> list[HistoryCondition]:
        """What is looked for in history."""
        conditions = [look.compiled.rule.condition for look in self.looks]
        return [one for one in conditions if not isinstance(one, SilenceCondition)]

    def add(self, stored: Sequence[Stored], most: int) -> bool:
        """Add rows that were read, at most `most` at a time; return whether they are enough.

        The states know the changes of newer readings already, so rows up to these are too few.
        """
        self.stored += stored
        self.complete = len(stored) < most
        if stored:
            self.read_to = stored[-1].ts, stored[-1].sequence
        known = max(max(look.state.newest, look.state.at) for look in self.looks)
        return self.complete or stored[-1].ts > known or len(self.stored) > MOST_ROWS

    def decisions(self, missing: Unstored | None, now: int) -> Iterator[tuple[Look, Decision]]:
        """Decide one look after the other, by what history had at `now` (ms)."""
        known: dict[str, _Readings] = {}
        for look in self.looks:
            condition = look.compiled.rule.condition
            if isinstance(condition, SilenceCondition):
                continue
            source = getattr(condition, "property", look.state.id)
            if source not in known:
                rows = rows_of(condition, self.stored)
                known[source] = _Readings(rows, in_time(rows))
            decision = self._decide(look, known[source], missing, now)
            if decision is None:
                self.waits = True
            else:
                yield look, decision

    def silences(self, newest: int | None, now: int) -> Iterator[tuple[Look, Decision]]:
        """Decide by when the last report arrived (ms), at `now` (ms)."""
        for look in self.looks:
            rule, state = look.compiled.rule, look.state
            if isinstance(rule.condition, SilenceCondition):
                after, changes = decide_silence(rule.condition, state, newest, now)
                yield look, Decision(rule, state, after, changes, after != state)

    def go_on(self, settled: Iterable[tuple[Look, State]]) -> None:
        """Keep the looks for which there is more in history, with the states that were written."""
        self.looks = []
        for look, state in settled:
            look.state = state
            if not self.complete and look.start is not None:
                look.start = continued(look.start, state)
                look.heard = [row for row in look.heard if row.ts >= look.start.at]
                self.looks.append(look)
        first = min((look.start.at for look in self.looks if look.start), default=0)
        self.stored = [row for row in self.stored if row.ts >= first]

    def _decide(
        self, look: Look, readings: _Readings, missing: Unstored | None, read_at: int
    ) -> Decision | None:
        """Decide by readings; None when something that is not stored yet comes before one."""
        rule, judge, state = look.compiled.rule, look.compiled.judge, look.state
        start = look.start or Start(floor_of(state), None, full=True)
        kept = not self.complete or have_all(readings.rows, look.heard)
        if not kept:
            rows = merged(readings.rows, look.heard)
            readings = _Readings(rows, in_time(rows))
        now = read_at if self.complete else self.stored[-1].ts
        if missing is not None:
            if any(row.sequence > missing.sequence for row in readings.rows):
                return None
            now = min(now, missing.received)
        if not state.changed:  # it counts what was pointed at before its rule was renamed
            begun = min((row.arrival for row in look.heard), default=now)
            state = msgspec.structs.replace(state, begun=min(state.begun, begun))
        if kept:
            window = Window(start, readings.in_time, read_at, self.complete)
            after, changes = decide(rule, judge, state, window, now)
        else:
            after, changes = decide_by_pointers(rule, judge, state, readings.in_time, now)
        if self.complete and readings.in_time is not readings.rows:
            timely = {row[:2] for row in readings.in_time}
            _late.add(sum(row[:2] not in timely for row in look.heard))
        folded = len(readings.rows) - bisect_left(readings.rows, (start.at,))
        is_written = not self.complete or folded > FOLDED or not is_unchanged(look.state, after)
        return Decision(rule, look.state, after, changes, is_written)


def joined(pointers: Iterable[Pointer], rules: Mapping[int, Compiled]) -> list[Look]:
    """Return one look for each rule and device, whatever number of pointers there are."""
    looks: dict[tuple[int, int], Look] = {}
    for pointer in pointers:
        earliest = pointer.earliest or pointer.ts
        for rule, value in pointer.values.items():
            if rule not in rules:
                continue
            look = looks.get((device := pointer.device_id, rule))
            if look is None:
                look = Look(
                    rules[rule], fresh_state(rules[rule].rule, device), pointer.ts, earliest
                )
                looks[device, rule] = look
            arrival = pointer.received or pointer.ts
            look.heard.append(Row(pointer.ts, pointer.sequence, value, arrival))
            look.oldest = min(look.oldest, pointer.ts)
            look.earliest = min(look.earliest, earliest)
    return list(looks.values())


def by_device(looks: Iterable[Look], serials: Mapping[int, str]) -> Iterator[list[DeviceLooks]]:
    """Join the looks at each device that has a SN, in parts that are written together."""
    devices: dict[tuple[int, type], DeviceLooks] = {}
    for look in looks:
        device, kind = look.state.device, type(look.compiled.rule.condition)
        if device in serials and not look.is_late():
            fresh = DeviceLooks(device, serials[device], [])
            devices.setdefault((device, kind), fresh).looks.append(look)
    part, size = list[DeviceLooks](), 0
    for one in devices.values():
        size += len(one.looks)
        if part and size > CHUNK:
            yield part
            part, size = [], len(one.looks)
        part.append(one)
    if part:
        yield part
