"""What a device has remembered, as decoders give it: `history: [{timestamp, …}]`. No I/O."""

from typing import Any

from libs.common.clock import ms_of
from libs.common.decoding import parse_number
from libs.common.tsl import Fault, Tsl
from libs.common.tsl.limits import MAX_TS
from services.device.telemetry.batch import Reading

MEMORY = "history"
"""A key that is so, or ends in `_history`, has what a device has remembered."""
MOST = 255
"""Readings of a frame: it has no more bytes."""


def take_memories(
    given: dict[str, Any], tsl: Tsl, oldest: int, newest: int
) -> tuple[list[Reading], list[Fault]]:
    """Take out of decoded values what a device has remembered of `oldest` to `newest` (ms).

    Return a reading for each moment with the values that the TSL accepts, and a fault for each
    row or value that is refused. A property that the TSL declares is none.
    """
    past: dict[int, dict[str, Any]] = {}
    faults: list[Fault] = []
    for place, row in _rows(given, tsl, faults):
        ts = _time(row)
        if ts is None:
            faults.append(Fault(place, "needs a timestamp in seconds or milliseconds"))
            continue
        if not oldest <= ts <= newest:
            faults.append(Fault(place, f"{ts:.0f} is no time within the retention"))
            continue
        good, bad = tsl.check_decoded({k: v for k, v in row.items() if k != "timestamp"})
        faults += [Fault(f"{place}.{one.path}", one.reason, one.code, one.args) for one in bad]
        if good:
            values = past.setdefault(int(ts), {})
            faults += [
                Fault(f"{place}.{key}", "is left out: another row has a value of this time")
                for key in good
                if values.get(key, good[key]) != good[key]
            ]
            past[int(ts)] = good | values
    return [Reading(*one) for one in past.items()], faults


def _rows(given: dict[str, Any], tsl: Tsl, faults: list[Fault]) -> list[tuple[str, dict[str, Any]]]:
    """Take the rows out of decoded values, each with its place."""
    found: list[tuple[str, Any]] = []
    for key in [one for one in given if one == MEMORY or one.endswith("_history")]:
        if tsl.property(key) is None and _are_memories(given[key]):
            found += [(f"{key}[{at}]", row) for at, row in enumerate(given.pop(key))]
    if len(found) > MOST:
        faults.append(Fault(MEMORY, f"has {len(found)} readings, and a frame {MOST} at most"))
        return []
    faults += [Fault(place, "must be an object") for place, row in found if type(row) is not dict]
    return [(place, row) for place, row in found if type(row) is dict]


def _are_memories(rows: Any) -> bool:
    return isinstance(rows, list) and (
        not rows or any(isinstance(row, dict) and "timestamp" in row for row in rows)
    )


def _time(row: dict[str, Any]) -> float | None:
    """Return the time of a row in ms, None when it has none."""
    told = row.get("timestamp")
    if isinstance(told, str):
        told = parse_number(told)
    if not isinstance(told, int | float) or isinstance(told, bool):
        return None
    ts = ms_of(told)
    return ts if abs(ts) <= MAX_TS else None
