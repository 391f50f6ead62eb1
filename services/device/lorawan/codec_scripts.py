"""Input and output of codec scripts, judged by the TSL. No I/O.

TS013 of the LoRa Alliance has `decodeUplink(input)`, which gives `{data, errors, warnings}`, and
`encodeDownlink(input)`, which gives `{bytes, fPort, errors, warnings}`. Older ones are
`Decode(fPort, bytes, variables)` of ChirpStack 3 and `Decoder(bytes, port)`, which give values, and
`Encode(fPort, obj, variables)` and `Encoder(obj, port)`, which give bytes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from libs.common.clock import ms_of
from libs.common.decoding import parse_number
from libs.common.tsl import Fault, Tsl
from libs.common.tsl.limits import MAX_DEPTH, MAX_KEY, MAX_TS
from services.device.lorawan.codec_worker import Outcome
from services.device.telemetry.batch import LONGEST_REASON, Reading
from services.device.things.codec_model import (
    LARGEST_PORT,
    MOST_BYTES,
    Argument,
    Codec,
    CodecFailed,
    Step,
)

_LEVELS = re.compile("[.#]")


def nest_keys(values: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return `values` with keys of several levels as objects, and a fault for each lost value.

    A value is lost when another value has its place: a key without levels precedes one with
    levels, whatever their order, and an earlier key a later one. Keys nest at every level.
    """
    faults: list[Fault] = []
    if not _has_levels(values, 0):
        return values, faults
    return _nest(values, "properties", 1, faults), faults


def _has_levels(value: Any, depth: int) -> bool:
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, dict):
        if _LEVELS.search("\n".join(value)):
            return True
        value = value.values()
    elif not isinstance(value, list):
        return False
    return any(_has_levels(item, depth + 1) for item in value if isinstance(item, dict | list))


def _nest(value: Any, path: str, depth: int, faults: list[Fault]) -> Any:
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, list):
        return [_nest(v, f"{path}[{at}]", depth + 1, faults) for at, v in enumerate(value)]
    if not isinstance(value, dict):
        return value
    nested: dict[str, Any] = {}
    for key in sorted(value, key=lambda key: _LEVELS.search(key) is not None):
        place = f"{path}.{key[:MAX_KEY]}"
        levels = _LEVELS.split(key)
        if depth + len(levels) > MAX_DEPTH + 1:
            faults.append(Fault(place, f"has more than {MAX_DEPTH} levels"))
            continue
        _put(nested, levels, _nest(value[key], place, depth + len(levels), faults), place, faults)
    return nested


def _put(
    place: dict[str, Any], levels: list[str], value: Any, path: str, faults: list[Fault]
) -> None:
    *above, key = levels
    for level in above:
        place = place.setdefault(level, {})
        if not isinstance(place, dict):
            faults.append(Fault(path, "is left out: another value is in its place"))
            return
    if key not in place:
        place[key] = value
    elif isinstance(place[key], dict) and isinstance(value, dict):
        for inner, item in value.items():
            _put(place[key], [inner], item, f"{path}.{inner[:MAX_KEY]}", faults)
    elif place[key] != value:
        faults.append(Fault(path, "is left out: another value is in its place"))


def is_expected(given: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Return whether decoded values are those of an example, whose keys may have levels.

    Text that is a number equals the number: a numeric property accepts both.
    """
    return _equals(given, nest_keys(expected)[0], 0)


def _equals(given: Any, expected: Any, depth: int) -> bool:
    if given == expected or depth > MAX_DEPTH:
        return bool(given == expected)
    if isinstance(given, dict) and isinstance(expected, dict):
        return given.keys() == expected.keys() and all(
            _equals(given[key], expected[key], depth + 1) for key in given
        )
    if isinstance(given, list) and isinstance(expected, list):
        return len(given) == len(expected) and all(
            _equals(one, other, depth + 1) for one, other in zip(given, expected, strict=True)
        )
    texts = isinstance(given, str), isinstance(expected, str)
    number = parse_number(given if texts[0] else expected) if texts[0] != texts[1] else None
    return number is not None and number in (given, expected)


DECODERS = {
    "decodeUplink": [Argument("input")],
    "Decode": [Argument("fPort"), Argument("bytes", payload=True), Argument("variables")],
    "Decoder": [Argument("bytes", payload=True), Argument("port")],
}
"""Entry points that decode, the first that there is counts."""
ENCODERS = {
    "encodeDownlink": [Argument("input")],
    "Encode": [Argument("fPort"), Argument("obj", payload=True), Argument("variables")],
    "Encoder": [Argument("obj", payload=True), Argument("port")],
}
ENTRIES = (*DECODERS, *ENCODERS)
BYTE = 256
"""Values of a byte."""


class Decoded(NamedTuple):
    """Values by top-level key, warnings of the codec, and faults of values that are left out."""

    properties: dict[str, Any]
    warnings: list[str]
    faults: list[Fault]


class Encoded(NamedTuple):
    """What is sent, to which port, and what the codec warns of."""

    content: bytes
    port: int
    warnings: list[str]


def entry_of(
    functions: Mapping[str, Sequence[str]], conventions: Mapping[str, list[Argument]]
) -> list[Step]:
    """The entry point that scripts have by convention; `functions` are those of each script."""
    for entry, args in conventions.items():
        for script, found in functions.items():
            if entry in found:
                return [Step(script, entry, args)]
    return []


def decoded(steps: Sequence[Step], value: Any) -> Decoded:
    """What decoding gave; raise `CodecFailed` when that is no object, or says that it failed.

    Keys with levels (`plan.days`, `plan.days#sunday`) become objects, at every level.
    """
    warnings: list[str] = []
    if steps[-1].entry == "decodeUplink":
        answer = _answer(value)
        warnings, value = _texts(answer, "warnings"), answer.get("data")
    if not isinstance(value, dict):
        raise CodecFailed("gives no object")
    properties, faults = nest_keys(value)
    return Decoded(properties, warnings, faults)


def encoded(steps: Sequence[Step], value: Any, port: int) -> Encoded:
    """What encoding gave; raise `CodecFailed` when that is no bytes, or says that it failed.

    `port` is where it goes unless the codec says another. Network servers cut off the fraction of a
    byte (`[interval / 256, interval % 256]`), and so does this.
    """
    warnings: list[str] = []
    if steps[-1].entry == "encodeDownlink":
        answer = _answer(value)
        warnings, value = _texts(answer, "warnings"), answer.get("bytes")
        port = answer.get("fPort") or port
    if not isinstance(value, list) or len(value) > MOST_BYTES:
        raise CodecFailed(f"gives no array of at most {MOST_BYTES} bytes")
    for at, byte in enumerate(value):
        if type(byte) not in (int, float) or not 0 <= byte < BYTE:
            raise CodecFailed(f"gives {byte!r:.40} as byte {at}")
    if type(port) is not int or not 1 <= port <= LARGEST_PORT:
        raise CodecFailed(f"gives {port!r:.40} as port")
    return Encoded(bytes(map(int, value)), port, warnings)


def _answer(value: Any) -> dict[str, Any]:
    """What an entry point of TS013 gave."""
    if not isinstance(value, dict):
        raise CodecFailed("gives no object")
    if errors := _texts(value, "errors"):
        raise CodecFailed("; ".join(errors))
    return value


def _texts(answer: dict[str, Any], name: str) -> list[str]:
    texts = answer.get(name) or []
    return [str(one)[:500] for one in texts[:20]] if isinstance(texts, list) else [str(texts)[:500]]


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


class Judged(NamedTuple):
    """The good properties and the faults; all is refused when there is a `reason`."""

    properties: dict[str, Any]
    past: list[Reading]
    faults: list[Fault]
    reason: str = ""

    @property
    def said(self) -> str:
        """Why all of it, or a part of it, is refused."""
        return (self.reason or _text(self.faults))[:LONGEST_REASON]


def judge(codec: Codec, outcome: Outcome, tsl: Tsl, oldest: int, newest: int) -> Judged:
    """What is taken of a frame; what it remembered has to be of `oldest` to `newest` (ms)."""
    try:
        given, _, left_out = decoded(codec.decoder, outcome.given())
    except CodecFailed as error:
        return Judged({}, [], [], f"the codec {error}")
    readings, faults = take_memories(given, tsl, oldest, newest)
    properties, bad = tsl.check_decoded(given)
    faults = [*left_out, *bad, *faults]
    if faults and not properties and not readings:
        return Judged({}, [], faults, _text(faults))
    return Judged(properties, readings, faults)


def _text(faults: list[Fault]) -> str:
    return "; ".join(map(str, faults[:20]))
