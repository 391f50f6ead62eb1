"""Finds what is missing between the frames of a device, by their counters. No I/O.

A device counts all that it sends, also what it sends for the network alone: a counter that is
missing is no proof of a lost reading. A new session, and a counter that begins anew in its session,
are no gaps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.device.reports.frames.model import SAME_MS, CountedFrame

MOST_JUMP = 16_384
"""Counters that may be missing in a row (LoRaWAN 1.0.3, MAX_FCNT_GAP); after more it began anew."""


@dataclass(slots=True)
class Gap:
    """Counters that are missing between two frames."""

    key: bytes
    """Of the frame before it."""
    start: int
    """When that was received, ms."""
    end: int
    """When the frame after it was received, ms."""
    counter: int
    """The first one that is missing."""
    last: int
    session: bytes
    missing: int

    @property
    def interval(self) -> float:
        """Milliseconds from one of its frames to the next, if they were sent evenly."""
        return (self.end - self.start) / (self.last - self.counter + 2)

    def within(self) -> tuple[int, int] | None:
        """Its first and last whole second, half an interval away from its edges; None for none."""
        half = self.interval / 2
        first, last = -int(-(self.start + half) // 1000), int((self.end - half) // 1000)
        return (first, last) if first < last else None


def find_gaps(frames: Iterable[CountedFrame]) -> list[Gap]:
    """The gaps between frames, which come in the order in which they were received."""
    found: list[Gap] = []
    run = 0
    newest: CountedFrame | None = None
    lower: CountedFrame | None = None
    for frame in frames:
        if newest is None or frame.session != newest.session:
            run, newest, lower = len(found), frame, None
        elif frame.counter > newest.counter:
            _add(found, newest, frame)
            newest, lower = frame, None
        elif _is_late(found[run:], frame):
            continue
        elif lower is None or frame.counter <= lower.counter:
            lower = frame  # late too, unless the next one goes on from it
        else:
            run = len(found)
            _add(found, lower, frame)
            newest, lower = frame, None
    return [gap for gap in found if gap.missing]


def _add(found: list[Gap], before: CountedFrame, after: CountedFrame) -> None:
    missing = after.counter - before.counter - 1
    if 0 < missing <= MOST_JUMP:
        first, last = before.counter + 1, after.counter - 1
        session = before.session
        found.append(Gap(before.key, before.ts, after.ts, first, last, session, missing))


def _is_late(gaps: Sequence[Gap], frame: CountedFrame) -> bool:
    """Whether a frame closes a part of a gap."""
    for gap in reversed(gaps):
        if gap.counter <= frame.counter <= gap.last:
            late = frame.ts - gap.end <= SAME_MS
            gap.missing -= late
            return late
    return False
