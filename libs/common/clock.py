"""Times as the APIs and the bus represent them: ms since 1970-01-01T00:00Z."""

import time
from datetime import UTC, datetime, timedelta

from libs.common.decoding import parse_number

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
MIN_MILLISECONDS = 100_000_000_000
"""Smaller numbers are times in seconds: as ms, they would be in 1973 or earlier."""


def now_ms() -> int:
    """Return the current time, ms."""
    return int(time.time() * 1000)


def to_ms(moment: datetime) -> int:
    """Return an aware time in whole ms, rounded down as MongoDB does."""
    return (moment - _EPOCH) // _MILLISECOND


def from_ms(ms: float) -> datetime:
    """Return the UTC time of a number of ms."""
    return _EPOCH + timedelta(0, 0, 0, ms)


def normalize_ms(timestamp: float) -> float:
    """Return a time in ms that is given in seconds or ms; its size decides."""
    return timestamp * 1000 if timestamp < MIN_MILLISECONDS else timestamp


def parse_time(value: object) -> datetime | None:
    """Return a time with its zone, or None if `value` is not a time.

    It may be ISO 8601 (UTC without a zone) or a number of seconds or ms since 1970, also as text.
    """
    if isinstance(value, str):
        number = parse_number(value.strip())
        value = _parse_iso(value.strip()) if number is None else number
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return from_ms(normalize_ms(value))
    except (ValueError, OverflowError):
        return None


def _parse_iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
