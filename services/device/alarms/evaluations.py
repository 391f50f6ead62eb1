"""Evaluations of states that are requested or due."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from opentelemetry import metrics

from services.device.alarms.decision import (
    AlarmTransition,
    FoldStart,
    ReadingWindow,
    TimedValue,
    decide,
    decide_without_history,
    differs_in_progress_only,
    drop_late_readings,
    earliest_relevant_ms,
    find_fold_start,
)
from services.device.alarms.events import EvaluationRequest
from services.device.alarms.model import SilenceCondition, State, new_state
from services.device.alarms.row_sources import (
    HistoryCondition,
    StoredReport,
    UnstoredMessage,
    contains_all,
    merge_values,
    select_values,
)
from services.device.alarms.rule_index import CompiledRule
from services.device.alarms.store import StateUpdate

MAX_READINGS_WITHOUT_WRITE = 500
"""A state that has folded in more readings than this is written, so that they are not read
again."""

_late_counter = metrics.get_meter("thingway").create_counter(
    "thingway_alarm_readings_late", description="Readings that arrived too late to change an alarm"
)


@dataclass(slots=True)
class Evaluation:
    """Evaluation of a rule for a device."""

    compiled: CompiledRule
    state: State
    """The stored state as it was read last."""
    oldest: int = 0
    """Time of the oldest reading to fold in, ms; 0 if any reading may be missing in the state."""
    earliest: int = 0
    """Time of the oldest reading that is possibly not evaluated yet, ms; 0 if unknown."""
    requested: list[TimedValue] = field(default_factory=list)
    """Readings that the evaluation requests contain."""

    def discard_late_and_check_empty(self) -> bool:
        """Drop requested readings that are too old; return whether this left none.

        Any report ends a silence, however old it is.
        """
        floor = earliest_relevant_ms(self.state)
        late = [row for row in self.requested if row.ts < floor]
        if not late or isinstance(self.compiled.rule.condition, SilenceCondition):
            return False
        _late_counter.add(sum(row.arrival > self.state.changed for row in late))
        self.requested = [row for row in self.requested if row.ts >= floor]
        return not self.requested

    def find_start(self, now: int) -> FoldStart:
        """Return where the evaluation begins at `now` (ms)."""
        return find_fold_start(self.state, self.oldest, self.earliest, now)

    def to_update(
        self, after: State, changes: Sequence[AlarmTransition], *, write: bool = False
    ) -> StateUpdate:
        """Return the update of the state to `after`.

        It must be written if `write` is true, or if more than the progress of the evaluation
        differs.
        """
        write = write or not differs_in_progress_only(self.state, after)
        return StateUpdate(self.compiled.rule, self.state, after, changes, write)


EvaluationAndUpdate = tuple[Evaluation, StateUpdate]
"""An evaluation and the resulting update of its state."""


class HistoryRead(NamedTuple):
    """History of a device as it was read for evaluations."""

    stored: list[StoredReport]
    missing: UnstoredMessage | None
    """The oldest message that is not stored yet."""
    complete: bool
    """Whether all newer rows were read, too."""


@dataclass(slots=True)
class DeviceEvaluations:
    """Evaluations of one device whose conditions are all of values, of events or of silence.

    They share a read of history.
    """

    device: int
    sn: str
    evaluations: list[Evaluation]
    must_wait: bool = False
    """Whether requests must be delivered again, because earlier messages are not stored yet."""

    def history_conditions(self) -> Iterator[HistoryCondition]:
        """Yield the conditions that need history."""
        for item in self.evaluations:
            if not isinstance(item.compiled.rule.condition, SilenceCondition):
                yield item.compiled.rule.condition

    def decide_all(
        self,
        stored: Sequence[StoredReport],
        missing: UnstoredMessage | None,
        now: int,
        *,
        complete: bool,
    ) -> Iterator[EvaluationAndUpdate]:
        """Yield each evaluation and its update, by the rows that history had at `now` (ms).

        `missing` is the oldest message that is not stored yet. An evaluation with readings after
        this message is left out and must wait. When the rows are not `complete`, newer rows follow.
        """
        self.must_wait = not complete
        end = now if complete else stored[-1].ts
        values_by_condition: dict[str, tuple[list[TimedValue], list[TimedValue]]] = {}
        for item, condition in zip(self.evaluations, self.history_conditions(), strict=True):
            rule, check, state = item.compiled.rule, item.compiled.check, item.state
            source = getattr(condition, "property", state.id)
            if source not in values_by_condition:
                values_by_condition[source] = (
                    (readings := select_values(condition, stored)),
                    drop_late_readings(readings),
                )
            rows, timely = values_by_condition[source]
            if not (must_keep := not complete or contains_all(rows, item.requested)):
                timely = drop_late_readings(rows := merge_values(rows, item.requested))
            if missing is not None:
                if any(row.sequence > missing.sequence for row in rows):
                    self.must_wait = True
                    continue
                end = min(end, missing.received)
            if not state.changed:
                # A new state begins at the last change of the rule, also of its name only.
                # Requested readings that arrived before this change count nevertheless.
                begun = min((row.arrival for row in item.requested), default=end)
                state = msgspec.structs.replace(state, begun=min(state.begun, begun))
            start = item.find_start(now)
            if must_keep:
                window = ReadingWindow(start, timely, now, complete)
                after, changes = decide(rule, check, state, window, end)
            else:
                after, changes = decide_without_history(rule, check, state, timely, end)
            if complete and timely is not rows:
                counted = {row[:2] for row in timely}
                _late_counter.add(sum(row[:2] not in counted for row in item.requested))
            if missing is not None and after.due is not None and after.due <= now:
                self.must_wait = True
            folded = len(rows) - bisect_left(rows, (start.at,))
            yield (
                item,
                item.to_update(
                    after, changes, write=not complete or folded > MAX_READINGS_WITHOUT_WRITE
                ),
            )


def merge_requests(
    requests: Iterable[EvaluationRequest], rules: Mapping[int, CompiledRule]
) -> list[Evaluation]:
    """Return one evaluation for each rule and device; ignore rules that `rules` lacks.

    The state of each evaluation is a new one until the stored state is read.
    """
    evaluations: dict[tuple[int, int], Evaluation] = {}
    for request in requests:
        ts, device, earliest = request.ts, request.device_id, request.earliest or request.ts
        rows: dict[tuple[type, Any], TimedValue] = {}
        for rule, value in request.values.items():
            if (rule_state := rules.get(rule)) is not None:
                fresh = Evaluation(rule_state, new_state(rule_state.rule, device), ts, earliest)
                evaluation = evaluations.setdefault((device, rule), fresh)
                row = TimedValue(ts, request.sequence, value, request.received or ts)
                evaluation.requested.append(rows.setdefault((type(value), value), row))
                evaluation.oldest = min(evaluation.oldest, ts)
                evaluation.earliest = min(evaluation.earliest, earliest)
    return list(evaluations.values())


def group_by_device(
    evaluations: Iterable[Evaluation], serials: Mapping[int, str]
) -> list[DeviceEvaluations]:
    """Group evaluations by device and type of condition.

    Evaluations are dropped when `serials` lacks the device, or when all requested readings are too
    old.
    """
    devices: dict[tuple[int, type], DeviceEvaluations] = {}
    for evaluation in evaluations:
        device, kind = evaluation.state.device, type(evaluation.compiled.rule.condition)
        if device in serials and not evaluation.discard_late_and_check_empty():
            fresh = DeviceEvaluations(device, serials[device], [])
            devices.setdefault((device, kind), fresh).evaluations.append(evaluation)
    return list(devices.values())
