"""Codecs of products on the wire; every field is one word, so that both APIs spell it alike."""

from typing import Annotated, Any

import msgspec

from services.device.things.codec_model import MOST_SCRIPTS, Chain, Name, Script
from services.device.things.product_model import MOST_EXAMPLES, CodecExample, CodecFrame


class PutCodec(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `PUT …/codec`: one `script`, or several `scripts` by name.

    Without `decoder` the entry points are those of TS013 or the older ones that are found.
    """

    script: Script | None = None
    scripts: Annotated[dict[Name, Script], msgspec.Meta(max_length=MOST_SCRIPTS)] = {}
    decoder: Chain = []
    encoder: Chain = []
    examples: Annotated[list[CodecExample], msgspec.Meta(max_length=MOST_EXAMPLES)] = []


class Healing(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Whether devices are asked, how often each, and by which service of theirs."""

    on: bool
    hour: int
    day: int
    service: str | None = None
    """None when the codec has no such request."""
    fault: str | None = None
    """Why nothing is asked by it."""


class TryCodec(CodecFrame, kw_only=True):
    """Body of `POST …/codec/test`: a frame to be decoded, or values to be encoded for a port."""

    values: dict[str, Any] | None = None
    codec: PutCodec | None = None
    """Try this one and not the product's; nothing is stored."""


EXAMPLE = {
    "script": "function decodeUplink(input) {"
    " return {data: {temperature: (input.bytes[0] << 8 | input.bytes[1]) / 10}} } "
    "function encodeDownlink(input) {"
    " return {bytes: [1, input.data.reporting_interval], fPort: 2} }",
    "examples": [{"port": 2, "hex": "00d7", "expected": {"temperature": 21.5}}],
}
"""A codec of TS013."""
TRIAL = {"port": 2, "hex": "00d7"}
HEALING = {"on": False, "hour": 2, "day": 10}


class CodecFault(msgspec.Struct):
    """What the TSL says against a value, and where: `properties.temperature`."""

    field: str
    reason: str


class RememberedValues(msgspec.Struct):
    """What a device remembers of a moment, in ms, as history would have it."""

    ts: int
    values: dict[str, Any]


class TriedCodec(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a codec made of a frame or of values; `fault` when it failed."""

    fault: str | None = None
    warnings: list[str] = []
    properties: dict[str, Any] | None = None
    """What it decoded."""
    accepted: dict[str, Any] | None = None
    """What of that the current TSL lets in, as it would be stored."""
    history: list[RememberedValues] = []
    """What the device remembers: it enters history at these times, within the retention."""
    refused: list[CodecFault] = []
    """What the TSL says against what was decoded, or against a write of `values`."""
    port: int | None = None
    hex: str | None = None
    """What it encoded."""
    base64: str | None = None
    """The same."""
    log: list[str] = []
    """Lines that the codec wrote to its `console`: at most 100 of 500 characters."""
