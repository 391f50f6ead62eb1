"""Generated readings of a device, and a plain computation of the resulting state."""

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from services.device.alarms.model import (
    EventCondition,
    RuleCondition,
    SilenceCondition,
    ValueCondition,
)

LATE = 120_000
"""ms by which a reading may arrive behind a newer one."""
FIRST = 1_700_000_000_000
"""ms: when sequences begin."""


class Reading(NamedTuple):
    """A value, or the id of an event."""

    ts: int
    sequence: int
    value: Any
    arrival: int


class Clear(NamedTuple):
    """A user clears the alarm if it is open."""

    arrival: int


Step = list[Reading] | Clear
"""Readings that are evaluated together, or a clearing."""


@dataclass
class Sequence:
    """The condition of a rule, and the readings and clearings of its device."""

    condition: RuleCondition
    in_order: bool
    steps: list[Step] = field(default_factory=list)
    restarts: set[int] = field(default_factory=set)
    """Steps before which the process that points at readings begins anew."""
    end: int = 0
    """ms: when the result is looked at."""


@dataclass
class Expected:
    """The result of the plain computation."""

    status: str
    is_open: bool
    alarms: list[tuple[int, int | None]]
    """When each was raised and is over, if all readings came in order and nobody cleared any."""


_NUMBERS = (20, 25, 28, 29, 29, 31, 35, "hot")
_CONDITIONS: list[tuple[RuleCondition, tuple[Any, ...]]] = [
    (ValueCondition("t", "GT", 30), _NUMBERS),
    (ValueCondition("t", "GT", 30, hysteresis=2), _NUMBERS),
    (ValueCondition("t", "GT", 30, seconds=60), _NUMBERS),
    (ValueCondition("t", "GTE", 31, hysteresis=2, seconds=60), (20, 29, 29, 31, 35, 31)),
    (ValueCondition("t", "GT", 30, hysteresis=2, seconds=300), (20, 29, 31, 35, 31, 33, 40)),
    (ValueCondition("t", "LT", 10, hysteresis=1, seconds=20), (5, 9, 10, 10.5, 11, 12, 3)),
    (ValueCondition("t", "LTE", 10, seconds=90), (5, 9, 10, 11, 3)),
    (ValueCondition("t", "EQ", "on", seconds=30), ("on", "on", "off", 1)),
    (ValueCondition("t", "NE", True), (True, False, "off")),
    (EventCondition("smoke", "clear"), ("smoke", "clear", "smoke", "other")),
    (EventCondition("smoke"), ("smoke", "other")),
    (SilenceCondition(30), (1,)),
]


def generate(seed: int) -> Sequence:
    """Generate 20 to 30 readings in one of the orders in which devices send them.

    Some sequences have readings that arrive too late and change nothing.
    """
    chance = random.Random(seed)
    condition, values = chance.choice(_CONDITIONS)
    in_order = chance.random() < 0.4
    made = Sequence(condition, in_order)
    farthest = chance.choice((LATE, LATE, 3 * LATE))
    ts, found = FIRST, list[tuple[int, int, Any]]()
    for _ in range(chance.randint(20, 30)):
        ts += chance.choice((0, 1, 1_000, 5_000, 20_000, 20_000, 45_000, 200_000))
        behind = 0 if in_order else chance.choice((0, 0, 30_000, LATE, farthest))
        found.append((ts + chance.randint(0, behind), ts, chance.choice(values)))
    found.sort(key=lambda one: one[0])
    readings = _arrived(chance, found)
    left = readings
    while left:
        size = chance.choice((1, 1, 2, 3, 5, 8, 40))
        made.steps.append(left[:size])
        last, left = left[size - 1 : size] or left[-1:], left[size:]
        if chance.random() < 0.15:
            made.steps.append(Clear(last[0].arrival))
    made.restarts = {at for at in range(len(made.steps)) if chance.random() < 0.2}
    made.end = readings[-1].arrival + chance.choice((0, 15_000, 100_000, 400_000))
    return made


def _arrived(chance: random.Random, found: list[tuple[int, int, Any]]) -> list[Reading]:
    """Return readings in arrival order: immediate, hours later, or in one upload."""
    way, first = chance.choice(("at once", "later", "upload")), found[-1][0] + 3 * 3_600_000
    readings = []
    for sequence, (key, ts, value) in enumerate(found, 1):
        arrival = {
            "at once": key,
            "later": key + 3 * 3_600_000,
            "upload": first + sequence * chance.choice((0, 1, 100)),
        }[way]
        if readings:
            arrival = max(arrival, readings[-1].arrival)
        readings.append(Reading(ts, sequence, value, arrival))
    return readings


def expected(
    condition: RuleCondition, readings: list[Reading], clears: list[int], now: int
) -> Expected:
    """Compute the state from all `readings` that have arrived at `now` (ms).

    `clears` are the times (ms) at which users cleared an alarm.
    """
    cleared = max(clears, default=-1)
    if isinstance(condition, SilenceCondition):
        return _silent(condition, readings, cleared, now)
    in_order = sorted(_in_time(readings), key=lambda one: (one.ts, one.sequence))
    if isinstance(condition, EventCondition):
        return _happened(condition, in_order, cleared)
    return _beyond(condition, in_order, cleared, now)


def _in_time(readings: list[Reading]) -> list[Reading]:
    """Return readings that are at most 120 s older than an earlier arrival."""
    return [
        reading
        for reading in readings
        if all(
            reading.ts >= other.ts - LATE for other in readings if other.arrival < reading.arrival
        )
    ]


def _beyond(condition: ValueCondition, readings: list[Reading], cleared: int, now: int) -> Expected:
    alarms: list[tuple[int, int | None]] = []
    run: list[Reading] = []
    """Those beyond the threshold since it was not."""
    raised_at: int | None = None
    for reading in readings:
        verdict = _verdict(condition, reading.value)
        if verdict is None:
            continue
        if run and raised_at is None and reading.ts >= run[0].ts + condition.seconds * 1000:
            raised_at = run[0].ts + condition.seconds * 1000
        if verdict == "beyond":
            run.append(reading)
            if condition.seconds == 0 and raised_at is None:
                raised_at = run[0].ts
        elif raised_at is None:
            run = []
        elif verdict == "back":
            alarms.append((raised_at, reading.ts))
            run, raised_at = [], None
    heard = min((one.arrival for one in run), default=0)
    if run and raised_at is None and now >= max(run[0].ts, heard) + condition.seconds * 1000:
        raised_at = run[0].ts + condition.seconds * 1000
    if raised_at is not None:
        alarms.append((raised_at, None))
        return Expected("RAISED", heard > cleared, alarms)
    return Expected("PENDING" if run else "NORMAL", False, alarms)


def _verdict(condition: ValueCondition, value: Any) -> str | None:
    limit, margin = condition.threshold, condition.hysteresis
    if isinstance(limit, (bool, str)):
        if type(value) is not type(limit):
            return None
        return "beyond" if (value == limit) == (condition.comparison == "EQ") else "back"
    if isinstance(value, (bool, str)):
        return None
    distance = value - limit if condition.comparison.startswith("G") else limit - value
    if distance > 0 or (distance == 0 and condition.comparison.endswith("E")):
        return "beyond"
    if distance > -margin or (distance == -margin and condition.comparison.endswith("E")):
        return "between"
    return "back"


def _happened(condition: EventCondition, events: list[Reading], cleared: int) -> Expected:
    alarms: list[tuple[int, int | None]] = []
    raised_at: int | None = None
    for event in events:
        if event.value == condition.event and event.arrival > cleared and raised_at is None:
            raised_at = event.ts
        elif event.value == condition.ended_by and raised_at is not None:
            alarms.append((raised_at, event.ts))
            raised_at = None
    if raised_at is None:
        return Expected("NORMAL", False, alarms)
    return Expected("RAISED", True, [*alarms, (raised_at, None)])


def _silent(
    condition: SilenceCondition, readings: list[Reading], cleared: int, now: int
) -> Expected:
    alarms: list[tuple[int, int | None]] = []
    times = sorted(reading.arrival for reading in readings)
    for last, following in zip(times, [*times[1:], None], strict=True):
        silent_at = last + condition.seconds * 1000
        if silent_at <= (now if following is None else following):
            alarms.append((silent_at, following))
    if alarms and alarms[-1][1] is None:
        return Expected("RAISED", alarms[-1][0] > cleared, alarms)
    return Expected("NORMAL", False, alarms)
