"""What scripts are: their entry points by convention, and what these give. No I/O.

TS013 of the LoRa Alliance has `decodeUplink(input)`, which gives `{data, errors, warnings}`, and
`encodeDownlink(input)`, which gives `{bytes, fPort, errors, warnings}`. Older ones are
`Decode(fPort, bytes, variables)` of ChirpStack 3 and `Decoder(bytes, port)`, which give values, and
`Encode(fPort, obj, variables)` and `Encoder(obj, port)`, which give bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from libs.common.tsl import Fault
from services.device.codecs.keys import nest_keys
from services.device.things.codec_model import LARGEST_PORT, MOST_BYTES, Argument, CodecFailed, Step

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
