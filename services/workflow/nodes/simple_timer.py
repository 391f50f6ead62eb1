"""`simpleTimer`: starts a flow once, at intervals, or at times of certain days."""

import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from services.workflow.nodes.base import Entry
from services.workflow.nodes.parameters import Fault, Parameters, parameter, read_map

Day = Literal["MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"]
LATEST = 253_402_300_799
"""9999-12-31T23:59:59Z in seconds, the largest valid time."""
LONGEST = 1_000_000
"""Maximum interval in its unit."""
MOST_RULES = 100
UTC = "UTC"

Second = Annotated[int, msgspec.Meta(ge=0, le=LATEST)]


class TimerRule(msgspec.Struct, rename="camel"):
    """A time of day."""

    hour: Annotated[int, msgspec.Meta(ge=0, le=23)]
    minute: Annotated[int, msgspec.Meta(ge=0, le=59)]
    days_of_week: Annotated[
        Annotated[list[Day], msgspec.Meta(max_length=7)] | None,
        msgspec.Meta(description="Null or empty: every day"),
    ] = None


class TimerSettings(msgspec.Struct, rename="camel", kw_only=True):
    """The times when the flow runs."""

    type: Literal["ONCE", "INTERVAL", "SCHEDULE"]
    timezone: Annotated[
        Annotated[str, msgspec.Meta(max_length=64)] | None,
        msgspec.Meta(description="IANA name of the time zone. Default: UTC"),
    ] = None
    execution_epoch_second: Annotated[Second | None, msgspec.Meta(description="ONCE: the time")] = (
        None
    )
    interval_time_unit: Annotated[
        Literal["MINUTES", "HOURS", "DAYS"] | None,
        msgspec.Meta(description="INTERVAL: the unit; a day has 24 hours"),
    ] = None
    interval_time: Annotated[int, msgspec.Meta(ge=1, le=LONGEST)] | None = None
    rules: Annotated[
        Annotated[list[TimerRule], msgspec.Meta(max_length=MOST_RULES)] | None,
        msgspec.Meta(description="SCHEDULE: times of day"),
    ] = None
    expiration_epoch_second: Annotated[
        Second | None, msgspec.Meta(description="The timer ends at this time")
    ] = None


class SimpleTimerParameters(Parameters):
    """The times when the flow runs."""

    timer_settings: Annotated[
        TimerSettings,
        parameter("Execution", "When the flow runs", ui="timerSettings", ui_group="Timer Settings"),
    ]

    def faults(self) -> Iterable[Fault]:
        """Yield an unknown time zone and missing settings of the timer's type."""
        settings = self.timer_settings
        if settings.timezone and not is_zone(settings.timezone):
            text = "must be an IANA time zone such as Europe/Berlin"
            yield Fault("timerSettings.timezone", text)
        needed: Mapping[str, Mapping[str, Any]] = {
            "ONCE": {"executionEpochSecond": settings.execution_epoch_second},
            "INTERVAL": {
                "intervalTimeUnit": settings.interval_time_unit,
                "intervalTime": settings.interval_time,
            },
            "SCHEDULE": {"rules": settings.rules or None},
        }
        for field, value in needed[settings.type].items():
            if value is None:
                yield Fault(f"timerSettings.{field}", f"is required for type {settings.type}")


def is_zone(name: str) -> bool:
    """Return whether a time zone exists."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError for names of folders
        return False
    return True


class SimpleTimer(Entry[SimpleTimerParameters]):
    """Starts a flow at due times with `executionEpochSecond` and `timezone`."""

    name = "simpleTimer"
    title = "Timer"
    description = "Runs the flow once, at intervals, or at times of certain days"

    def entered(self, parameters: SimpleTimerParameters, given: Any) -> dict[str, Any]:
        """Return the due time of the run; by default now, for tests."""
        zone = parameters.timer_settings.timezone or UTC
        now = {"executionEpochSecond": int(time.time()), "timezone": zone}
        return {**now, **read_map(given)}
