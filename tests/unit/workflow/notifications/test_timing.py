"""When users are told of alarms."""

from datetime import UTC, datetime, timedelta

import pytest

from services.workflow.notifications.store import (
    LONGEST_PAUSE_SECONDS,
    Notifications,
    QuietHours,
    compute_due_time,
    compute_retry_pause,
    find_quiet_end,
)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def settings(begin: str, end: str, digest: int = 0, zone: str = "Europe/Berlin") -> Notifications:
    hours = QuietHours(begin, end)
    return Notifications(digest_minutes=digest, quiet_hours=hours, time_zone=zone)


@pytest.mark.parametrize(
    ("begin", "end", "now", "until"),
    [
        ("22:00", "06:00", "2026-01-10 20:59", None),
        ("22:00", "06:00", "2026-01-10 21:00", "2026-01-11 05:00"),
        ("22:00", "06:00", "2026-01-11 04:59", "2026-01-11 05:00"),
        ("22:00", "06:00", "2026-01-11 05:00", None),
        ("12:00", "13:00", "2026-01-10 11:30", "2026-01-10 12:00"),
        ("12:00", "13:00", "2026-01-10 12:00", None),
        ("22:00", "06:00", "2026-03-28 23:00", "2026-03-29 04:00"),
        ("22:00", "06:00", "2026-10-24 23:00", "2026-10-25 05:00"),
    ],
)
def test_quiet_hours_are_those_of_the_zone(begin: str, end: str, now: str, until: str | None):
    """Over midnight, at both of their ends, and when the clock is put forward or back."""
    expected = None if until is None else at(until)
    assert find_quiet_end(settings(begin, end), at(now)) == expected


def test_a_digest_that_is_due_in_quiet_hours_waits_for_their_end():
    """Without a digest alarms are sent at the end; without quiet hours the digest alone counts."""
    now = at("2026-01-10 20:30")
    assert compute_due_time(settings("22:00", "06:00"), now) == now
    assert compute_due_time(settings("22:00", "06:00", digest=60), now) == at("2026-01-11 05:00")
    assert compute_due_time(Notifications(digest_minutes=60), now) == now + timedelta(hours=1)


def test_pauses_grow_up_to_an_hour():
    """Each is twice the one before."""
    assert [compute_retry_pause(number).total_seconds() for number in (1, 2, 3)] == [15, 30, 60]
    assert compute_retry_pause(500).total_seconds() == LONGEST_PAUSE_SECONDS
