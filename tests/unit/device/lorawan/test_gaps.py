"""Gaps between frames."""

import pytest

from services.device.lorawan.frame_store import CountedFrame
from services.device.lorawan.gaps import MAX_COUNTER_GAP, Gap, find_gaps
from services.device.telemetry.partitions import history_key

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
ONE, OTHER = b"session1", b"session2"


def frames(*counters: int, begin: int = 0, session: bytes = ONE) -> list[CountedFrame]:
    """Return frames that are a minute apart."""
    return [
        CountedFrame(history_key(7, begin + at * MINUTE, at), begin + at * MINUTE, session, counter)
        for at, counter in enumerate(counters)
    ]


def gap(start: int, end: int, counter: int, last: int, missing: int | None = None) -> Gap:
    """Return a gap between two minutes."""
    key = history_key(7, start * MINUTE, start)
    missing = last - counter + 1 if missing is None else missing
    return Gap(key, start * MINUTE, end * MINUTE, counter, last, ONE, missing)


@pytest.mark.parametrize(
    ("counters", "gaps"),
    [
        ((1, 2, 3), []),
        ((1, 3, 4, 9), [gap(0, 1, 2, 2), gap(2, 3, 5, 8)]),
        ((5, 9, 7, 10), [gap(0, 1, 6, 8, missing=2)]),
        ((5, 9, 8, 6, 7, 10), []),
        ((5, 9, 9, 6, 10), [gap(0, 1, 6, 8, missing=2)]),
        ((5, 6, 2, 7), []),
        ((900, 901, 0, 1, 2, 3), []),
        ((900, 901, 0, 2, 3), [gap(2, 3, 1, 1)]),
        ((1, MAX_COUNTER_GAP + 2), [gap(0, 1, 2, MAX_COUNTER_GAP + 1)]),
        ((1, MAX_COUNTER_GAP + 3, 2**32 - 1), []),
    ],
)
def test_missing_counters_are_gaps(counters: tuple[int, ...], gaps: list[Gap]) -> None:
    """Late frames close gaps; a counter that restarts or jumps leaves none."""
    assert find_gaps(frames(*counters)) == gaps


def test_a_new_session_is_no_gap() -> None:
    """A new session may start with any counter."""
    assert find_gaps([*frames(1, 2), *frames(7, 8, begin=MINUTE * 2, session=OTHER)]) == []


def test_a_frame_more_than_a_day_later_is_not_late() -> None:
    """A frame more than a day later has a counter that restarted."""
    later = 2 * MINUTE + DAY
    found = find_gaps([*frames(5, 9), *frames(6, 7, begin=later)])
    assert found == [gap(0, 1, 6, 8)]


def test_the_requested_range_is_half_an_interval_inside_the_gap() -> None:
    """The requested range is in whole seconds; a short gap has none."""
    assert gap(0, 10, 1, 9).request_range_seconds() == (30, 570)
    short = Gap(b"", 1000, 3000, 1, 1, ONE, 1)
    assert (short.frame_interval_ms, short.request_range_seconds()) == (1000, None)
