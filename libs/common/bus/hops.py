"""Hops: the number of flows that led to a message, which stops endless loops.

Messages that a flow causes carry the number in a header. A service that derives a message from such
a message (the event of a report or of a confirmed command) copies the header. Inside a process, the
task carries the number, like a trace.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

HOPS_HEADER = "Thingway-Hops"
MAX_HOPS = 255
"""The maximum; greater numbers count as this one."""
_MAX_DIGITS = 9
"""Maximum digits of a number of hops."""

_current_hops: ContextVar[int] = ContextVar("thingway_hops", default=0)


def read_hops(headers: Mapping[str, str] | None) -> int:
    """Return the hops in a message's headers; 0 if missing or unreadable."""
    text = (headers or {}).get(HOPS_HEADER, "")
    readable = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return min(int(text), MAX_HOPS) if readable else 0


def hops_header(hops: int) -> dict[str, str]:
    """Return the header for `hops`; empty for 0."""
    return {HOPS_HEADER: str(hops)} if hops else {}


def current_hops() -> int:
    """Return the number of flows that led to the current task."""
    return _current_hops.get()


@contextmanager
def carrying_hops(hops: int) -> Iterator[None]:
    """Set the number of hops for everything inside the block."""
    token = _current_hops.set(min(hops, MAX_HOPS))
    try:
        yield
    finally:
        _current_hops.reset(token)
