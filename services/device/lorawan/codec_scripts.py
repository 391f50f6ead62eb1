"""Inputs and results of codec scripts, and their check against the TSL. No I/O.

TS013 of the LoRa Alliance has `decodeUplink(input)`, which returns `{data, errors, warnings}`, and
`encodeDownlink(input)`, which returns `{bytes, fPort, errors, warnings}`. Older conventions are
`Decode(fPort, bytes, variables)` of ChirpStack 3 and `Decoder(bytes, port)`, which return values,
and `Encode(fPort, obj, variables)` and `Encoder(obj, port)`, which return bytes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from libs.common.clock import normalize_ms
from libs.common.decoding import parse_number
from libs.common.tsl import Fault, Tsl
from libs.common.tsl.limits import MAX_DEPTH, MAX_KEY_LENGTH, MAX_TIME_MS
from services.device.lorawan.codec_calls import CallOutcome
from services.device.telemetry.batch import MAX_FRAME_REASON_LENGTH, PastReading
from services.device.things.codec_model import (
    MAX_FRAME_BYTES,
    MAX_LORAWAN_PORT,
    Codec,
    CodecArgument,
    CodecFailed,
    CodecStep,
)

_LEVEL_SEPARATOR = re.compile("[.#]")


def nest_keys(values: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return `values` with nested keys as objects, and a fault for each lost value.

    Nested keys have several levels, such as `plan.days` and `plan.days#sunday`. A value is lost
    when a different value has its place, or when it is deeper than `MAX_DEPTH`. A plain key takes
    precedence over a nested key, and an earlier key over a later key.
    """
    faults: list[Fault] = []
    if not _has_nested_keys(values, 0):
        return values, faults
    return _nest(values, "properties", 1, faults), faults


def _has_nested_keys(value: Any, depth: int) -> bool:
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, dict):
        if _LEVEL_SEPARATOR.search("\n".join(value)):
            return True
        value = value.values()
    elif not isinstance(value, list):
        return False
    return any(_has_nested_keys(item, depth + 1) for item in value if isinstance(item, dict | list))


def _nest(value: Any, path: str, depth: int, faults: list[Fault]) -> Any:
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, list):
        return [_nest(v, f"{path}[{at}]", depth + 1, faults) for at, v in enumerate(value)]
    if not isinstance(value, dict):
        return value
    nested: dict[str, Any] = {}
    for key in sorted(value, key=lambda key: _LEVEL_SEPARATOR.search(key) is not None):
        place = f"{path}.{key[:MAX_KEY_LENGTH]}"
        levels = _LEVEL_SEPARATOR.split(key)
        if depth + len(levels) > MAX_DEPTH + 1:
            faults.append(Fault(place, f"has more than {MAX_DEPTH} levels"))
            continue
        _put_nested(
            nested, levels, _nest(value[key], place, depth + len(levels), faults), place, faults
        )
    return nested


def _put_nested(
    place: dict[str, Any], levels: list[str], value: Any, path: str, faults: list[Fault]
) -> None:
    *above, key = levels
    for level in above:
        place = place.setdefault(level, {})
        if not isinstance(place, dict):
            faults.append(Fault(path, "is ignored: another value has the same key"))
            return
    if key not in place:
        place[key] = value
    elif isinstance(place[key], dict) and isinstance(value, dict):
        for inner, item in value.items():
            _put_nested(place[key], [inner], item, f"{path}.{inner[:MAX_KEY_LENGTH]}", faults)
    elif place[key] != value:
        faults.append(Fault(path, "is ignored: another value has the same key"))


def equals_example(decoded: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Return whether decoded values equal an example, whose keys may be nested.

    Text that is a number equals the number: a numeric property accepts both.
    """
    return _equals_at_depth(decoded, nest_keys(expected)[0], 0)


def _equals_at_depth(decoded: Any, expected: Any, depth: int) -> bool:
    if decoded == expected or depth > MAX_DEPTH:
        return bool(decoded == expected)
    if isinstance(decoded, dict) and isinstance(expected, dict):
        return decoded.keys() == expected.keys() and all(
            _equals_at_depth(decoded[key], expected[key], depth + 1) for key in decoded
        )
    if isinstance(decoded, list) and isinstance(expected, list):
        return len(decoded) == len(expected) and all(
            _equals_at_depth(decoded_item, other, depth + 1)
            for decoded_item, other in zip(decoded, expected, strict=True)
        )
    texts = isinstance(decoded, str), isinstance(expected, str)
    number = parse_number(decoded if texts[0] else expected) if texts[0] != texts[1] else None
    return number is not None and number in (decoded, expected)


DECODER_ARGUMENTS_BY_ENTRY_POINT = {
    "decodeUplink": [CodecArgument("input")],
    "Decode": [
        CodecArgument("fPort"),
        CodecArgument("bytes", payload=True),
        CodecArgument("variables"),
    ],
    "Decoder": [CodecArgument("bytes", payload=True), CodecArgument("port")],
}
"""Arguments of decoders by entry point; the first entry point that a script has is used."""
ENCODER_ARGUMENTS_BY_ENTRY_POINT = {
    "encodeDownlink": [CodecArgument("input")],
    "Encode": [
        CodecArgument("fPort"),
        CodecArgument("obj", payload=True),
        CodecArgument("variables"),
    ],
    "Encoder": [CodecArgument("obj", payload=True), CodecArgument("port")],
}
ENTRY_POINTS = (*DECODER_ARGUMENTS_BY_ENTRY_POINT, *ENCODER_ARGUMENTS_BY_ENTRY_POINT)
BYTE_VALUE_COUNT = 256
"""Number of values that a byte can have."""


class DecodedUplink(NamedTuple):
    """Values by top-level key, warnings of the codec, and faults of lost values."""

    properties: dict[str, Any]
    warnings: list[str]
    faults: list[Fault]


class EncodedDownlink(NamedTuple):
    """Bytes and port of a downlink, and warnings of the codec."""

    content: bytes
    port: int
    warnings: list[str]


def find_entry_point(
    functions: Mapping[str, Sequence[str]], conventions: Mapping[str, list[CodecArgument]]
) -> list[CodecStep]:
    """Return one step that calls the first function of `conventions` that a script has, or none.

    `functions` has the names of functions by script, `conventions` the arguments by function name.
    """
    for entry, args in conventions.items():
        for script, script_functions in functions.items():
            if entry in script_functions:
                return [CodecStep(script, entry, args)]
    return []


def parse_decoder_result(steps: Sequence[CodecStep], value: Any) -> DecodedUplink:
    """Return the values of a decoder; raise `CodecFailed` for errors or no object.

    Nested keys (`plan.days`, `plan.days#sunday`) become objects, at every level.
    """
    warnings: list[str] = []
    if steps[-1].entry == "decodeUplink":
        answer = _check_ts013_result(value)
        warnings, value = _list_texts(answer, "warnings"), answer.get("data")
    if not isinstance(value, dict):
        raise CodecFailed("returns no object")
    properties, faults = nest_keys(value)
    return DecodedUplink(properties, warnings, faults)


def parse_encoder_result(steps: Sequence[CodecStep], value: Any, port: int) -> EncodedDownlink:
    """Return the bytes of an encoder; raise `CodecFailed` for errors, invalid bytes or ports.

    `port` applies unless the codec returns another port. The fraction of a byte is cut off, as
    network servers do (`[interval / 256, interval % 256]`).
    """
    warnings: list[str] = []
    if steps[-1].entry == "encodeDownlink":
        answer = _check_ts013_result(value)
        warnings, value = _list_texts(answer, "warnings"), answer.get("bytes")
        port = answer.get("fPort") or port
    if not isinstance(value, list) or len(value) > MAX_FRAME_BYTES:
        raise CodecFailed(f"returns no array of at most {MAX_FRAME_BYTES} bytes")
    for at, byte in enumerate(value):
        if type(byte) not in (int, float) or not 0 <= byte < BYTE_VALUE_COUNT:
            raise CodecFailed(f"returns {byte!r:.40} as byte {at}")
    if type(port) is not int or not 1 <= port <= MAX_LORAWAN_PORT:
        raise CodecFailed(f"returns {port!r:.40} as port")
    return EncodedDownlink(bytes(map(int, value)), port, warnings)


def _check_ts013_result(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CodecFailed("returns no object")
    if errors := _list_texts(value, "errors"):
        raise CodecFailed("; ".join(errors))
    return value


def _list_texts(answer: dict[str, Any], name: str) -> list[str]:
    texts = answer.get(name) or []
    return (
        [str(text)[:500] for text in texts[:20]] if isinstance(texts, list) else [str(texts)[:500]]
    )


PAST_READINGS_KEY = "history"
"""Decoded key of past readings. Keys that end with `_history` hold past readings too."""
MAX_READINGS_PER_FRAME = 255
"""Maximum past readings of a frame, because a frame has at most 255 bytes."""


def extract_past_readings(
    decoded: dict[str, Any], tsl: Tsl, oldest: int, newest: int
) -> tuple[list[PastReading], list[Fault]]:
    """Remove past readings from decoded values, and accept those of `oldest` to `newest` (ms).

    Return a reading for each time with the values that the TSL accepts, and a fault for each
    rejected row or value. A property that the TSL declares holds no past readings.
    """
    past: dict[int, dict[str, Any]] = {}
    faults: list[Fault] = []
    for place, row in _pop_past_rows(decoded, tsl, faults):
        ts = _row_time_ms(row)
        if ts is None:
            faults.append(Fault(place, "needs a timestamp in seconds or milliseconds"))
            continue
        if not oldest <= ts <= newest:
            faults.append(Fault(place, f"{ts:.0f} is outside the retention"))
            continue
        good, bad = tsl.check_decoded({k: v for k, v in row.items() if k != "timestamp"})
        faults += [
            Fault(f"{place}.{fault.path}", fault.reason, fault.code, fault.args) for fault in bad
        ]
        if good:
            values = past.setdefault(int(ts), {})
            faults += [
                Fault(f"{place}.{key}", "is ignored: another row has a value of this time")
                for key in good
                if values.get(key, good[key]) != good[key]
            ]
            past[int(ts)] = good | values
    return [PastReading(*item) for item in past.items()], faults


def _pop_past_rows(
    decoded: dict[str, Any], tsl: Tsl, faults: list[Fault]
) -> list[tuple[str, dict[str, Any]]]:
    rows_by_key: list[tuple[str, Any]] = []
    for key in [key for key in decoded if key == PAST_READINGS_KEY or key.endswith("_history")]:
        if tsl.property(key) is None and _are_past_readings(decoded[key]):
            rows_by_key += [(f"{key}[{at}]", row) for at, row in enumerate(decoded.pop(key))]
    if len(rows_by_key) > MAX_READINGS_PER_FRAME:
        faults.append(
            Fault(
                PAST_READINGS_KEY,
                f"has {len(rows_by_key)} readings; a frame has at most {MAX_READINGS_PER_FRAME}",
            )
        )
        return []
    faults += [
        Fault(place, "must be an object") for place, row in rows_by_key if type(row) is not dict
    ]
    return [(place, row) for place, row in rows_by_key if type(row) is dict]


def _are_past_readings(rows: Any) -> bool:
    return isinstance(rows, list) and (
        not rows or any(isinstance(row, dict) and "timestamp" in row for row in rows)
    )


def _row_time_ms(row: dict[str, Any]) -> float | None:
    """Return the time of a row in ms; None if it is missing or invalid."""
    timestamp = row.get("timestamp")
    if isinstance(timestamp, str):
        timestamp = parse_number(timestamp)
    if not isinstance(timestamp, int | float) or isinstance(timestamp, bool):
        return None
    ts = normalize_ms(timestamp)
    return ts if abs(ts) <= MAX_TIME_MS else None


class DecodeResult(NamedTuple):
    """Accepted properties, past readings and faults; `reason` rejects the whole frame."""

    properties: dict[str, Any]
    past: list[PastReading]
    faults: list[Fault]
    reason: str = ""

    @property
    def rejection_reason(self) -> str:
        """Return why the frame is rejected in whole or in part, or an empty string."""
        return (self.reason or _join_faults(self.faults))[:MAX_FRAME_REASON_LENGTH]


def check_decoded_frame(
    codec: Codec, outcome: CallOutcome, tsl: Tsl, oldest: int, newest: int
) -> DecodeResult:
    """Check a decoded frame against the TSL.

    Past readings before `oldest` or after `newest` (ms) are rejected.
    """
    try:
        decoded, _, left_out = parse_decoder_result(codec.decoder, outcome.result())
    except CodecFailed as error:
        return DecodeResult({}, [], [], f"the codec {error}")
    readings, faults = extract_past_readings(decoded, tsl, oldest, newest)
    properties, bad = tsl.check_decoded(decoded)
    faults = [*left_out, *bad, *faults]
    if faults and not properties and not readings:
        return DecodeResult({}, [], faults, _join_faults(faults))
    return DecodeResult(properties, readings, faults)


def _join_faults(faults: list[Fault]) -> str:
    return "; ".join(map(str, faults[:20]))
