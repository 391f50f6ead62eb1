"""What a codec made of a frame, judged by the TSL of its device. No I/O."""

from math import isfinite
from typing import Any, NamedTuple

from libs.common.tsl import Fault, Tsl
from services.device.codecs.model import Codec, CodecFailed
from services.device.codecs.scripts import decoded
from services.device.codecs.worker import Outcome
from services.device.reports.frames.model import Reading

MEMORY = "history"
"""A key that is so, or ends in `_history`, has what a device has remembered."""
SECONDS_UNTIL = 100_000_000_000
"""A timestamp below it is in seconds: ms of so little are of 1973."""

LONGEST = 500
"""Characters of what is kept of the reasons."""


class Judged(NamedTuple):
    """The good properties and the faults; all is refused when there is a `reason`."""

    properties: dict[str, Any]
    past: list[Reading]
    faults: list[Fault]
    reason: str = ""

    @property
    def said(self) -> str:
        """Why all of it, or a part of it, is refused."""
        return (self.reason or _text(self.faults))[:LONGEST]


def judge(codec: Codec, outcome: Outcome, tsl: Tsl, oldest: int, newest: int) -> Judged:
    """What is taken of a frame; what it remembered has to be of `oldest` to `newest` (ms)."""
    try:
        given = decoded(codec.decoder, outcome.given()).properties
    except CodecFailed as error:
        return Judged({}, [], [], f"the codec {error}")
    remembered = take_memories(given, tsl)
    properties, faults = tsl.check_decoded(given)
    past: dict[int, dict[str, Any]] = {}
    for ts, values in remembered:
        if not oldest <= ts <= newest:
            faults.append(Fault(MEMORY, f"{ts} is no time within the retention"))
            continue
        good, bad = tsl.check_decoded(values)
        faults += bad
        if good:
            past.setdefault(ts, {}).update(good)
    readings = [Reading(*one) for one in past.items()]
    if faults and not properties and not readings:
        return Judged({}, [], faults, _text(faults))
    return Judged(properties, readings, faults)


def _text(faults: list[Fault]) -> str:
    return "; ".join(map(str, faults[:20]))


def take_memories(given: dict[str, Any], tsl: Tsl) -> list[Reading]:
    """Take out of decoded values what a device has remembered: arrays of objects with a timestamp.

    Makers' decoders give `history: [{timestamp: s, …}]`; a property that the TSL declares is one.
    """
    readings: list[Reading] = []
    for key in [one for one in given if one == MEMORY or one.endswith(f"_{MEMORY}")]:
        rows = given[key]
        if tsl.property(key) is not None or not _are_memories(rows):
            continue
        del given[key]
        for row in rows:
            at = row["timestamp"]
            ts = int(at * 1000 if at < SECONDS_UNTIL else at)
            readings.append(Reading(ts, {k: v for k, v in row.items() if k != "timestamp"}))
    return readings


def _are_memories(rows: Any) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, dict)
        and isinstance(row.get("timestamp"), int | float)
        and not isinstance(row["timestamp"], bool)
        and isfinite(row["timestamp"])
        for row in rows
    )
