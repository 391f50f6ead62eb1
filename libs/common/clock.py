"""Times as the APIs and the bus give them: ms since 1970-01-01T00:00Z."""

import time
from datetime import UTC, datetime, timedelta

from libs.common.decoding import parse_number

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
SECONDS_UNTIL = 100_000_000_000
"""A time below it is in seconds: ms of so little are of 1973."""


def now_ms() -> int:
    """The time, ms."""
    return int(time.time() * 1000)


def to_ms(moment: datetime) -> int:
    """A moment, which knows its zone, in whole ms, as MongoDB keeps it: what is less is cut off."""
    return (moment - _EPOCH) // _MS


def from_ms(ms: float) -> datetime:
    """The moment, UTC, of a time in ms."""
    return _EPOCH + timedelta(0, 0, 0, ms)


def ms_of(told: float) -> float:
    """A time in ms that is told in seconds or in ms, as its size says."""
    return told * 1000 if told < SECONDS_UNTIL else told


def parse_time(given: object) -> datetime | None:
    """Return the moment that `given` is, with its zone, or None.

    It may be ISO 8601, which is UTC without a zone, or a number of seconds or ms since 1970, also
    as text.
    """
    if isinstance(given, str):
        number = parse_number(given.strip())
        given = _parse_iso(given.strip()) if number is None else number
    if isinstance(given, datetime):
        return given if given.tzinfo else given.replace(tzinfo=UTC)
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    try:
        return from_ms(ms_of(given))
    except (ValueError, OverflowError):
        return None


def _parse_iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
