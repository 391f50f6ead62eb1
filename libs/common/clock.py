"""Times as the APIs and the bus give them: ms since 1970-01-01T00:00Z."""

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """The time, ms."""
    return int(time.time() * 1000)


def to_ms(moment: datetime) -> int:
    """A moment, which knows its zone, in ms; what MongoDB keeps comes back as it was."""
    return round(moment.timestamp() * 1000)


def from_ms(ms: float) -> datetime:
    """The moment, UTC, of a time in ms."""
    return datetime.fromtimestamp(ms / 1000, UTC)
