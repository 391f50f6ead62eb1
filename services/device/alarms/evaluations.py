"""Evaluations of states that are to be done, and the decision of each."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from opentelemetry import metrics

from services.device.alarms.decision import (
    Change,
    Row,
    Window,
    decide,
    decide_by_pointers,
    floor_of,
    in_time,
    is_unchanged,
    start_of,
)
from services.device.alarms.events import Pointer
from services.device.alarms.model import SilenceCondition, State, fresh_state
from services.device.alarms.row_sources import (
    HistoryCondition,
    Stored,
    Unstored,
    have_all,
    merged,
    rows_of,
)
from services.device.alarms.rule_index import Compiled
from services.device.alarms.store import Decision

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

    def is_late(self) -> bool:
        """Drop the readings that change nothing any more; return whether no other is left.

        Any report ends a silence, however old it is.
        """
        floor = floor_of(self.state)
        late = [row for row in self.heard if row.ts < floor]
        if not late or isinstance(self.compiled.rule.condition, SilenceCondition):
            return False
        _late.add(sum(row.arrival > self.state.changed for row in late))
        self.heard = [row for row in self.heard if row.ts >= floor]
        return not self.heard

    def decided(self, after: State, changes: Sequence[Change], *, write: bool = False) -> Decision:
        """Return what becomes of the state, which has to be written if it is not the same."""
        write = write or not is_unchanged(self.state, after)
        return Decision(self.compiled.rule, self.state, after, changes, write)


@dataclass(slots=True)
class DeviceLooks:
    """The looks at one device that share what is read of it: values, events, or its silence."""

    device: int
    sn: str
    looks: list[Look]
    waits: bool = False
    """Whether pointers have to come again: something is not stored yet, or not read."""

    def conditions(self) -> Iterator[HistoryCondition]:
        """Return what is looked for in history; nothing when a silence is looked at."""
        for look in self.looks:
            if not isinstance(look.compiled.rule.condition, SilenceCondition):
                yield look.compiled.rule.condition

    def decisions(
        self, stored: Sequence[Stored], missing: Unstored | None, now: int, *, complete: bool
    ) -> Iterator[tuple[Look, Decision]]:
        """Decide one look after the other, by the rows that history had at `now` (ms).

        `missing` is the oldest message that is not stored yet. When the rows are not `complete`,
        newer ones follow.
        """
        self.waits = not complete
        end, known = now if complete else stored[-1].ts, dict[str, tuple[list[Row], list[Row]]]()
        for look, condition in zip(self.looks, self.conditions(), strict=True):
            rule, judge, state = look.compiled.rule, look.compiled.judge, look.state
            source = getattr(condition, "property", state.id)
            if source not in known:
                known[source] = (found := rows_of(condition, stored)), in_time(found)
            rows, timely = known[source]
            if not (kept := not complete or have_all(rows, look.heard)):
                timely = in_time(rows := merged(rows, look.heard))
            if missing is not None:
                if any(row.sequence > missing.sequence for row in rows):
                    self.waits = True
                    continue
                end = min(end, missing.received)
            if not state.changed:  # it counts what was pointed at before its rule was renamed
                begun = min((row.arrival for row in look.heard), default=end)
                state = msgspec.structs.replace(state, begun=min(state.begun, begun))
            start = start_of(look.state, look.oldest, look.earliest, now)
            if kept:
                window = Window(start, timely, now, complete)
                after, changes = decide(rule, judge, state, window, end)
            else:
                after, changes = decide_by_pointers(rule, judge, state, timely, end)
            if complete and timely is not rows:
                counted = {row[:2] for row in timely}
                _late.add(sum(row[:2] not in counted for row in look.heard))
            if missing is not None and after.due is not None and after.due <= now:
                self.waits = True
            folded = len(rows) - bisect_left(rows, (start.at,))
            yield look, look.decided(after, changes, write=not complete or folded > FOLDED)


def joined(pointers: Iterable[Pointer], rules: Mapping[int, Compiled]) -> list[Look]:
    """Return one look for each rule and device, whatever number of pointers there are."""
    looks: dict[tuple[int, int], Look] = {}
    for pointer in pointers:
        ts, device, earliest = pointer.ts, pointer.device_id, pointer.earliest or pointer.ts
        rows: dict[tuple[type, Any], Row] = {}
        for rule, value in pointer.values.items():
            if (known := rules.get(rule)) is not None:
                fresh = Look(known, fresh_state(known.rule, device), ts, earliest)
                look = looks.setdefault((device, rule), fresh)
                row = Row(ts, pointer.sequence, value, pointer.received or ts)
                look.heard.append(rows.setdefault((type(value), value), row))
                look.oldest = min(look.oldest, ts)
                look.earliest = min(look.earliest, earliest)
    return list(looks.values())


def by_device(looks: Iterable[Look], serials: Mapping[int, str]) -> list[DeviceLooks]:
    """Join the looks at each device that has a SN."""
    devices: dict[tuple[int, type], DeviceLooks] = {}
    for look in looks:
        device, kind = look.state.device, type(look.compiled.rule.condition)
        if device in serials and not look.is_late():
            fresh = DeviceLooks(device, serials[device], [])
            devices.setdefault((device, kind), fresh).looks.append(look)
    return list(devices.values())
