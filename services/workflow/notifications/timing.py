"""When users are told. No I/O; moments are aware."""

from datetime import UTC, datetime, time, timedelta

from services.workflow.notifications.model import Notifications

FIRST_PAUSE, LONGEST_PAUSE = 15.0, 3600.0
"""Seconds after a failure; each pause is twice the one before."""
MOST_ATTEMPTS = 30
"""Failures one after the other, in rather more than a day, after which alarms are given up."""


def due(settings: Notifications, now: datetime) -> datetime:
    """When to tell of what happens now: gathered, and behind quiet hours."""
    gathered = now + timedelta(minutes=settings.digest_minutes)
    return quiet_until(settings, gathered) or gathered


def quiet_until(settings: Notifications, now: datetime) -> datetime | None:
    """The end of the quiet hours that a moment falls into; None when it falls into none."""
    hours = settings.quiet_hours
    if hours is None:
        return None
    local = now.astimezone(settings.zone)
    begin, end = time.fromisoformat(hours.begin), time.fromisoformat(hours.end)
    moment, day = local.time(), local.date()
    over_midnight = begin > end
    quiet = moment >= begin or moment < end if over_midnight else begin <= moment < end
    if not quiet:
        return None
    if over_midnight and moment >= begin:
        day += timedelta(days=1)
    return datetime.combine(day, end, settings.zone).astimezone(UTC)


def pause(attempts: int) -> timedelta:
    """For how long a channel rests after so many failures."""
    return timedelta(seconds=min(FIRST_PAUSE * 2 ** min(attempts - 1, 20), LONGEST_PAUSE))
