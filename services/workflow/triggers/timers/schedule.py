"""When timers are due. No I/O; times are ms since 1970.

A time of day that a change of clocks leaves out is due as long after the change as it would
have been after the day's last hour before it (02:30 becomes 03:30); one that comes twice is
due the first time only.
"""

from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from libs.common.clock import from_ms, to_ms
from services.workflow.nodes.simple_timer import TimerRule, TimerSettings

_UNITS = {"MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000}
_DAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_AROUND = range(-1, 9)
"""Days from now that hold the next time of every rule, in whatever zone."""


def next_due(settings: TimerSettings, anchor: int, after: int) -> int | None:
    """The first time after `after`; None when there is none any more.

    `anchor` is when the timer was set: intervals count from it.
    """
    due = _next(settings, anchor, after)
    end = settings.expiration_epoch_second
    return None if due is None or (end is not None and due > end * 1000) else due


def _next(settings: TimerSettings, anchor: int, after: int) -> int | None:
    match settings.type:
        case "ONCE":
            due = (settings.execution_epoch_second or 0) * 1000
            return due if due > after else None
        case "INTERVAL":
            length = _UNITS[settings.interval_time_unit or "DAYS"] * (settings.interval_time or 1)
            return anchor + max((after - anchor) // length + 1, 1) * length
        case "SCHEDULE":
            zone = ZoneInfo(settings.timezone or "UTC")
            times = _scheduled(settings.rules or (), zone, after)
            return min((one for one in times if one > after), default=None)


def _scheduled(rules: Iterable[TimerRule], zone: ZoneInfo, after: int) -> Iterator[int]:
    today = from_ms(after).astimezone(zone).date()
    for offset in _AROUND:
        day = today + timedelta(days=offset)
        for rule in rules:
            if not rule.days_of_week or _DAYS[day.weekday()] in rule.days_of_week:
                yield _moment(day, rule, zone)


def _moment(day: date, rule: TimerRule, zone: ZoneInfo) -> int:
    local = datetime(day.year, day.month, day.day, rule.hour, rule.minute, tzinfo=zone)
    return to_ms(local)
