"""Timers with a clock that stands still."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from services.workflow.engine.runner import AdmissionResult
from services.workflow.nodes.triggers import SimpleTimerParameters, TimerRule, TimerSettings
from services.workflow.triggers.timers import (
    Timer,
    TimerDeployments,
    TimerRunner,
    encode_timer_settings,
    read_timer_settings,
)
from tests.unit.workflow.triggers.flows import flow

MINUTE = 60_000
NOW = 1_780_000_000_000 // MINUTE * MINUTE


def interval(flow_id: int = 1, minutes: int = 10, **more: Any):
    """A flow that begins every few minutes."""
    settings = {"type": "INTERVAL", "intervalTimeUnit": "MINUTES", "intervalTime": minutes, **more}
    return flow(flow_id, "simpleTimer", timerSettings=settings)


@dataclass
class Kept:
    """A store in memory."""

    timers: dict[int, tuple[Any, int, int | None]] = field(default_factory=dict)

    async def get(self, flow_id, session):
        known = self.timers.get(flow_id)
        return None if known is None else (encode_timer_settings(known[0]), known[1], known[2])

    async def put(self, flow, anchor, due, session):
        self.timers[flow.flow_id] = (flow, anchor, due)

    async def remove(self, tenant, flow_id, session):
        self.timers.pop(flow_id, None)

    async def claim_due(self, now, most):
        return [
            Timer(flow=flow, anchor=anchor, due=due)
            for flow, anchor, due in self.timers.values()
            if due is not None and due <= now
        ][:most]

    async def store_next_dues(self, timers):
        for timer, due in timers:
            self.timers[timer.flow.flow_id] = (timer.flow, timer.anchor, due)

    async def find_next_claim_time(self, now):
        return min((due for _, _, due in self.timers.values() if due is not None), default=None)

    def due(self, flow_id: int = 1) -> int | None:
        """Minutes from `NOW`."""
        due = self.timers[flow_id][2]
        return None if due is None else (due - NOW) // MINUTE


@dataclass
class Played:
    """An engine that only takes notice."""

    keys: list[tuple[int, str]] = field(default_factory=list)
    entered: list[Any] = field(default_factory=list)
    full: set[str] = field(default_factory=set)
    """Tenants whose runs have no room."""

    async def record_starts(self, starts):
        refused = [start for start in starts if start.flow.tenant in self.full]
        new = [start for start in starts if (start.flow.flow_id, start.cause.key) not in self.keys]
        new = [one for one in new if one not in refused]
        self.keys += [(one.flow.flow_id, one.cause.key) for one in new]
        self.entered += [one.entered for one in new]
        return AdmissionResult([SimpleNamespace(recorded=True) for _ in new], refused)

    def execute(self, run):
        pass


class Bench:
    """Book and watch on one clock."""

    def __init__(self) -> None:
        self.minute = 0
        self.store, self.engine = Kept(), Played()
        self.book = TimerDeployments(self.store, self.now)
        self.watch = TimerRunner(self.store, self.engine, self.now, asyncio.Event())

    def now(self) -> int:
        return NOW + self.minute * MINUTE

    async def at(self, minute: int) -> int:
        """How many runs begin at a minute."""
        self.minute, before = minute, len(self.engine.keys)
        while await self.watch.start_due_runs():
            pass
        return len(self.engine.keys) - before


async def test_a_timer_starts_a_run_at_each_due_time():
    """It starts none before, and none twice."""
    bench = Bench()
    await bench.book.write_deployment("t", 1, interval(), None)
    begun = [await bench.at(minute) for minute in (0, 9, 10, 10, 11, 20)]
    assert begun == [0, 0, 1, 0, 0, 1]


async def test_missed_times_cause_one_run():
    """After a day of downtime there is one run, and the interval continues as before."""
    bench = Bench()
    await bench.book.write_deployment("t", 1, interval(), None)
    assert (await bench.at(24 * 60 + 5), bench.store.due()) == (1, 24 * 60 + 10)


async def test_a_replica_that_died_after_recording_leads_to_no_second_run():
    """The next replica that claims the timer only advances it."""
    bench = Bench()
    await bench.book.write_deployment("t", 1, interval(), None)
    before = dict(bench.store.timers)
    assert await bench.at(10) == 1
    bench.store.timers = before
    assert (await bench.at(11), bench.store.due()) == (0, 20)


async def test_a_run_that_cannot_be_recorded_leaves_the_timer_due():
    """Nothing is lost while the store is away."""
    bench = Bench()
    await bench.book.write_deployment("t", 1, interval(), None)

    async def fail(_starts):
        raise ConnectionError

    admit, bench.engine.record_starts = bench.engine.record_starts, fail
    with pytest.raises(ConnectionError):
        await bench.at(10)
    bench.engine.record_starts = admit
    assert await bench.at(11) == 1


async def test_a_flow_saved_again_keeps_its_beat_unless_the_timer_changed():
    """Another name keeps the interval; another interval restarts it."""
    bench = Bench()
    await bench.book.write_deployment("t", 1, interval(), None)
    bench.minute = 4
    await bench.book.write_deployment("t", 1, interval(), None)
    assert bench.store.due() == 10
    await bench.book.write_deployment("t", 1, interval(minutes=7), None)
    assert bench.store.due() == 11


async def test_a_flow_that_is_off_has_no_timer():
    """Neither has a flow with another entry. Enabling it restarts the interval."""
    bench = Bench()
    await bench.book.write_deployment("t", 1, interval(), None)
    await bench.book.write_deployment("t", 1, None, None)
    assert bench.store.timers == {}
    bench.minute = 5
    await bench.book.write_deployment("t", 1, interval(), None)
    assert bench.store.due() == 15
    await bench.book.write_deployment("t", 1, flow(1, "trigger"), None)
    assert bench.store.timers == {}


async def test_a_timer_ends_with_its_expiration():
    """A run that came due before it and was missed still takes place, one."""
    bench = Bench()
    await bench.book.write_deployment(
        "t", 1, interval(expirationEpochSecond=NOW // 1000 + 25 * 60), None
    )
    assert [await bench.at(10), await bench.at(60), await bench.at(70)] == [1, 1, 0]
    assert bench.store.due() is None


async def test_a_run_gets_its_time_and_zone():
    """As the notes have it."""
    bench = Bench()
    await bench.book.write_deployment("t", 1, interval(timezone="Europe/Berlin"), None)
    await bench.at(12)
    expected = {"executionEpochSecond": NOW // 1000 + 600, "timezone": "Europe/Berlin"}
    assert bench.engine.entered == [expected]


async def test_many_timers_are_claimed_a_few_at_a_time():
    """So that other replicas have their share."""
    bench = Bench()
    for number in range(120):
        await bench.book.write_deployment("t", number, interval(number), None)
    bench.minute = 10
    assert [await bench.watch.start_due_runs() for _ in range(4)] == [50, 50, 20, 0]


def faults(**settings: Any) -> list[str]:
    """The fields at fault."""
    parameters = SimpleTimerParameters(timer_settings=TimerSettings(**settings))
    return [fault.field.removeprefix("timerSettings.") for fault in parameters.find_faults()]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"type": "ONCE"}, ["executionEpochSecond"]),
        ({"type": "INTERVAL"}, ["intervalTimeUnit", "intervalTime"]),
        ({"type": "SCHEDULE"}, ["rules"]),
        ({"type": "SCHEDULE", "rules": []}, ["rules"]),
        ({"type": "ONCE", "execution_epoch_second": 1, "timezone": "Mars/Base"}, ["timezone"]),
        ({"type": "ONCE", "execution_epoch_second": 1, "timezone": "../etc"}, ["timezone"]),
        ({"type": "ONCE", "execution_epoch_second": 1, "timezone": "Europe"}, ["timezone"]),
        ({"type": "ONCE", "execution_epoch_second": 1, "timezone": "a\0b"}, ["timezone"]),
        ({"type": "SCHEDULE", "rules": [TimerRule(1, 2)], "timezone": "Asia/Tokyo"}, []),
    ],
)
def test_settings_are_checked(settings, expected):
    """Required settings of the timer's type and the time zone are validated."""
    assert faults(**settings) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"intervalTimeUnit": "SECONDS"},
        {"intervalTime": 0},
        {"intervalTime": "soon"},
        {"type": "HOURLY"},
        {"rules": [{"hour": 24, "minute": 0}]},
        {"rules": [{"hour": 1, "minute": 0, "daysOfWeek": ["SOMEDAY"]}]},
        {"expirationEpochSecond": 10**12},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong):
    """By their types and bounds."""
    with pytest.raises(ValueError, match="timerSettings"):
        read_timer_settings(interval(**wrong))


async def test_a_timer_without_room_stays_due_and_holds_up_no_other():
    """It begins when its tenant has room, once for all that it has missed."""
    bench = Bench()
    busy = msgspec.structs.replace(interval(1), tenant="busy")
    await bench.book.write_deployment("busy", 1, busy, None)
    await bench.book.write_deployment("t", 2, interval(2), None)
    bench.engine.full = {"busy"}
    bench.minute = 10
    await bench.watch.start_due_runs()
    assert [flow_id for flow_id, _ in bench.engine.keys] == [2]
    assert (bench.store.due(1), bench.store.due(2)) == (10, 20)
    bench.engine.full = set()
    assert (await bench.at(35), bench.store.due(1)) == (2, 40)
