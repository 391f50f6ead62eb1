"""Hops: how many flows have led to a message, so that a flow that feeds itself comes to an end.

What a flow has done carries the number in a header, and whoever makes a message out of that one
(a report's event, the event of a confirmed command) copies it. Inside a process it goes along
with the task, as a trace does.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

HOPS = "Thingway-Hops"
MOST = 255
"""More than this is nonsense, and read as this."""
_LONGEST = 9
"""Digits."""

_current: ContextVar[int] = ContextVar("thingway_hops", default=0)


def hops_of(headers: Mapping[str, str] | None) -> int:
    """The number in a message's headers; 0 when there is none, or none that can be read."""
    text = (headers or {}).get(HOPS, "")
    readable = text.isascii() and text.isdecimal() and len(text) <= _LONGEST
    return min(int(text), MOST) if readable else 0


def hops_header(hops: int) -> dict[str, str]:
    """The header that says `hops`; none for 0."""
    return {HOPS: str(hops)} if hops else {}


def current_hops() -> int:
    """How many flows have led to what this task does."""
    return _current.get()


@contextmanager
def led_by(hops: int) -> Iterator[None]:
    """Let what is done inside carry `hops`."""
    token = _current.set(min(hops, MOST))
    try:
        yield
    finally:
        _current.reset(token)
