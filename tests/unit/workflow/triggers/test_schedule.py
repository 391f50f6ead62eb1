"""When timers are due."""

from datetime import UTC, datetime

import pytest

from services.workflow.nodes.triggers import TimerRule, TimerSettings
from services.workflow.triggers.timers import compute_next_due_ms

BERLIN = "Europe/Berlin"


def ms(text: str) -> int:
    """A UTC time such as `2026-03-29T01:30`."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def utc(due: int | None) -> str | None:
    """The other way round."""
    return None if due is None else datetime.fromtimestamp(due / 1000, UTC).isoformat()[:16]


def daily(hour: int, minute: int, zone: str | None = BERLIN, **more) -> TimerSettings:
    """A timer with one rule."""
    days = more.pop("days", None)
    rules = [TimerRule(hour, minute, days)]
    return TimerSettings(type="SCHEDULE", timezone=zone, rules=rules, **more)


def dues(settings: TimerSettings, after: str, count: int) -> list[str | None]:
    """The next times, one after the other."""
    found, now = [], ms(after)
    for _ in range(count):
        due = compute_next_due_ms(settings, ms(after), now)
        found.append(utc(due))
        if due is None:
            break
        now = due
    return found


def test_a_single_time_is_due_once():
    """A time in the past is never due."""
    settings = TimerSettings(type="ONCE", execution_epoch_second=ms("2026-05-01T12:00") // 1000)
    assert dues(settings, "2026-05-01T11:59", 2) == ["2026-05-01T12:00", None]
    assert dues(settings, "2026-05-01T12:00", 1) == [None]


@pytest.mark.parametrize(
    ("unit", "length", "expected"),
    [
        ("MINUTES", 7, ["2026-05-01T12:07", "2026-05-01T12:14"]),
        ("HOURS", 5, ["2026-05-01T17:00", "2026-05-01T22:00"]),
        ("DAYS", 2, ["2026-05-03T12:00", "2026-05-05T12:00"]),
    ],
)
def test_intervals_count_from_when_the_timer_was_set(unit, length, expected):
    """Whenever they are asked for."""
    settings = TimerSettings(type="INTERVAL", interval_time_unit=unit, interval_time=length)
    assert dues(settings, "2026-05-01T12:00", 2) == expected


def test_after_a_downtime_an_interval_keeps_its_beat():
    """Missed times are not repeated one by one."""
    settings = TimerSettings(type="INTERVAL", interval_time_unit="MINUTES", interval_time=10)
    due = compute_next_due_ms(settings, ms("2026-05-01T12:00"), ms("2026-05-01T13:04"))
    assert utc(due) == "2026-05-01T13:10"


def test_a_clock_that_was_set_back_makes_no_interval_before_the_timer():
    """The first one is one interval after it was set."""
    settings = TimerSettings(type="INTERVAL", interval_time_unit="HOURS", interval_time=1)
    assert utc(compute_next_due_ms(settings, ms("2026-05-01T12:00"), ms("2026-05-01T09:30"))) == (
        "2026-05-01T13:00"
    )


def test_a_time_of_day_is_that_of_the_zone_summer_and_winter():
    """The clock on the wall counts, not the hours in between."""
    expected = ["2026-03-28T07:15", "2026-03-29T06:15", "2026-03-30T06:15"]
    assert dues(daily(8, 15), "2026-03-28T00:00", 3) == expected
    expected = ["2026-10-24T06:15", "2026-10-25T07:15", "2026-10-26T07:15"]
    assert dues(daily(8, 15), "2026-10-24T00:00", 3) == expected


def test_a_time_that_the_clocks_leave_out_is_due_once_after_the_change():
    """02:30 of the day on which 02:00 is followed by 03:00 is 03:30."""
    expected = ["2026-03-28T01:30", "2026-03-29T01:30", "2026-03-30T00:30"]
    assert dues(daily(2, 30), "2026-03-27T12:00", 3) == expected


def test_a_time_that_comes_twice_is_due_once():
    """The first time, before the clocks are set back."""
    expected = ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]
    assert dues(daily(2, 30), "2026-10-23T12:00", 3) == expected


def test_days_of_the_week_are_those_of_the_zone():
    """Monday 00:30 in Auckland is still Sunday in UTC."""
    settings = daily(0, 30, "Pacific/Auckland", days=["MONDAY"])
    assert dues(settings, "2026-05-01T00:00", 2) == ["2026-05-03T12:30", "2026-05-10T12:30"]


def test_several_rules_are_due_in_the_order_of_time():
    """A time that two rules name is due once."""
    rules = [TimerRule(18, 0), TimerRule(6, 0, ["FRIDAY"]), TimerRule(18, 0, ["FRIDAY"])]
    settings = TimerSettings(type="SCHEDULE", rules=rules)
    expected = ["2026-05-01T06:00", "2026-05-01T18:00", "2026-05-02T18:00"]
    assert dues(settings, "2026-05-01T00:00", 3) == expected


def test_without_a_zone_times_are_utc():
    """The zone of the machine does not matter."""
    assert dues(daily(8, 0, None), "2026-05-01T00:00", 1) == ["2026-05-01T08:00"]


@pytest.mark.parametrize("days", [["SUNDAY"], ["SATURDAY", "SUNDAY"], [], None])
def test_every_rule_has_a_next_time(days):
    """However far the day of the week is off, and in the zones at the edge of the day."""
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago", "America/Sao_Paulo"):
        for day in range(1, 8):
            assert compute_next_due_ms(
                daily(23, 59, zone, days=days), 0, ms(f"2026-06-0{day}T12:00")
            )


def test_nothing_is_due_after_the_expiration():
    """At it there still is."""
    end = ms("2026-05-02T06:00") // 1000
    settings = daily(8, 0, expiration_epoch_second=end)
    assert dues(settings, "2026-05-01T00:00", 3) == ["2026-05-01T06:00", "2026-05-02T06:00", None]
