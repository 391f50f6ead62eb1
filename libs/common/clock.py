"""Times as the APIs and the bus give them: ms since 1970-01-01T00:00Z."""

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def now_ms() -> int:
    """The time, ms."""
    return int(time.time() * 1000)


def to_ms(moment: datetime) -> int:
    """A moment, which knows its zone, in whole ms, as MongoDB keeps it: what is less is cut off."""
    return (moment - _EPOCH) // _MS


def from_ms(ms: float) -> datetime:
    """The moment, UTC, of a time in ms."""
    return _EPOCH + timedelta(0, 0, 0, ms)
