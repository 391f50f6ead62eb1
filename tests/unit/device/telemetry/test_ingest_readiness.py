"""Whether ingest is ready: it is when nothing waits, or what waits is being stored."""

from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum

from libs.common.errors import Unavailable
from libs.common.http.app import is_ready, run_check
from services.device.telemetry import ledger
from services.device.telemetry.ledger import (
    IDLE_PERIOD_SECONDS,
    STUCK_SECONDS,
    UplinkCounts,
    UplinkMetrics,
)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(ledger, "time", found)
    return found


@pytest.fixture
def uplink(clock: Clock) -> UplinkMetrics:
    nothing: Any = None
    return UplinkMetrics(nothing, [], SimpleNamespace(writes=0))


async def test_a_shrinking_backlog_is_ready_and_reports_its_lag(
    clock: Clock, uplink: UplinkMetrics
):
    """Rejected uplinks count as processed."""
    for n in range(5):
        clock.now += STUCK_SECONDS - 1
        uplink._record(UplinkCounts(stored=n, rejected=1, waiting=100))
    clock.now += 2
    assert await run_check(uplink.check) == "ok: 100 messages wait, the last was stored 2 s ago"
    assert is_ready(await run_check(uplink.check))


async def test_messages_that_wait_while_none_is_stored_are_no_readiness(
    clock: Clock, uplink: UplinkMetrics
):
    """As soon as one is stored, it is ready again."""
    uplink._record(UplinkCounts(stored=5, waiting=0))
    for _ in range(4):
        clock.now += 10
        uplink._record(UplinkCounts(stored=5, waiting=1))
    with pytest.raises(Unavailable, match="1 messages wait, and none was stored for 40 s"):
        await uplink.check()
    assert not is_ready(await run_check(uplink.check))
    uplink._record(UplinkCounts(stored=6, waiting=1))
    assert is_ready(await run_check(uplink.check))


async def test_silence_is_ready_and_ignorance_is_not(clock: Clock, uplink: UplinkMetrics):
    """Where nothing comes nothing has to be stored; what cannot be read is not known."""
    for _ in range(10):
        clock.now += 10
        uplink._record(UplinkCounts(stored=5, waiting=0))
    assert is_ready(await run_check(uplink.check))
    clock.now += STUCK_SECONDS + 1
    with pytest.raises(Unavailable, match="last read"):
        await uplink.check()


def test_no_counter_falls(monkeypatch: pytest.MonkeyPatch):
    """Prometheus would count a fall to `n`, and an increase from 0 to `n`, as `n` messages."""
    reader = InMemoryMetricReader()
    monkeypatch.setattr(ledger, "metrics", MeterProvider([reader]))
    nothing: Any = None
    uplink = UplinkMetrics(nothing, [], nothing)

    def observe() -> dict[str, tuple[bool, Any]]:
        data: Any = reader.get_metrics_data()
        return {
            metric.name.removeprefix("thingway_uplink_"): (
                isinstance(metric.data, Sum) and metric.data.is_monotonic,
                metric.data.data_points[0].value,
            )
            for metric in data.resource_metrics[0].scope_metrics[0].metrics
        }

    assert observe() == {"readings": (True, 0)}
    uplink._record(UplinkCounts(stored=5, waiting=4, accepted=9))  # two messages and second copies
    uplink._record(UplinkCounts(stored=7, accepted=7))
    assert observe() == {
        "stored": (True, 7),
        "rejected": (True, 0),
        "accepted": (False, 7),
        "waiting": (False, 0),
        "readings": (True, 2),
    }


async def test_the_ledger_is_read_only_when_a_stream_has_changed_or_messages_wait(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, uplink: UplinkMetrics
):
    """Each reading of the streams counts as one of the ledger.

    The streams are read after a write of this process, and else every `IDLE_PERIOD_SECONDS`.
    """
    streams = [1, 1, 2, 2, 2]
    counts = [UplinkCounts(), UplinkCounts(waiting=1), UplinkCounts(stored=1)]

    async def read_states(*_: Any) -> dict[str, Any]:
        return {"UPLINK": streams.pop(0)}

    async def count(*_: Any) -> UplinkCounts:
        return counts.pop(0)

    monkeypatch.setattr(ledger, "_read_states", read_states)
    monkeypatch.setattr(ledger, "_count_uplinks", count)
    left = []
    for seconds in (1, 1, IDLE_PERIOD_SECONDS, IDLE_PERIOD_SECONDS, 1):
        clock.now += seconds
        await uplink._read()
        left.append(len(counts))
    assert left == [2, 2, 2, 1, 0]
    assert (uplink._readings, len(streams)) == (4, 1)
    uplink._ledger.writes += 1
    await uplink._read()
    assert (uplink._readings, uplink._last) == (5, UplinkCounts(stored=1))
