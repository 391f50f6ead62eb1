"""What a device has remembered, as decoders give it: `history: [{timestamp, …}]`. No I/O."""

from math import isfinite
from typing import Any, NamedTuple

from libs.common.clock import ms_of
from libs.common.tsl import Fault, Tsl

MEMORY = "history"
"""A key that is so, or ends in `_history`, has what a device has remembered."""
MOST = 255
"""Readings of a frame: it has no more bytes."""


class Reading(NamedTuple):
    """Values of a moment (ms) that a device has remembered."""

    ts: int
    properties: dict[str, Any]


def take_memories(
    given: dict[str, Any], tsl: Tsl, oldest: int, newest: int
) -> tuple[list[Reading], list[Fault]]:
    """Take out of decoded values what a device has remembered of `oldest` to `newest` (ms).

    What the TSL lets in of it, a reading for each moment, and faults with the rest. A property that
    the TSL declares is none.
    """
    rows = _rows(given, tsl)
    if len(rows) > MOST:
        return [], [Fault(MEMORY, f"has {len(rows)} readings, and a frame {MOST} at most")]
    past: dict[int, dict[str, Any]] = {}
    faults: list[Fault] = []
    for row in rows:
        at = row["timestamp"]
        ts = int(ms_of(at))
        if not oldest <= ts <= newest:
            faults.append(Fault(MEMORY, f"{ts} is no time within the retention"))
            continue
        good, bad = tsl.check_decoded({k: v for k, v in row.items() if k != "timestamp"})
        faults += bad
        if good:
            past.setdefault(ts, {}).update(good)
    return [Reading(*one) for one in past.items()], faults


def _rows(given: dict[str, Any], tsl: Tsl) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for key in [one for one in given if one == MEMORY or one.endswith("_history")]:
        if tsl.property(key) is None and _are_memories(given[key]):
            found += given.pop(key)
    return found


def _are_memories(rows: Any) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, dict)
        and isinstance(row.get("timestamp"), int | float)
        and not isinstance(row["timestamp"], bool)
        and isfinite(ms_of(row["timestamp"]))
        for row in rows
    )
