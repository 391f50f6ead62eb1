"""Codecs, frames, gaps and decoding again on the wire."""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.contracts.frames import Reception
from libs.common.http.ids import Id
from services.device.telemetry.history import Moment
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


MOST_FRAMES = 200
"""Frames of a page."""


class FrameRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An uplink as its network server heard it, and what became of it."""

    ts: int
    """When the network received it, ms."""
    port: int
    hex: str
    """The bytes."""
    session: str = ""
    counter: int
    confirmed: bool = False
    rate: str = ""
    """As `SF7BW125`."""
    frequency: int | None = None
    """Hz."""
    gateways: list[Reception] = []
    """Those that heard it: dBm and dB."""
    values: dict[str, Any] | None = None
    """What the codec made of it, as it is stored."""
    reason: str | None = None
    """Why it, or a part of it, was refused."""
    codec: str = ""
    """The version of the codec that read it; empty when there was none."""


class FramePage(msgspec.Struct, rename="camel", omit_defaults=True):
    """A page; `nextPageKey` is absent on the last one."""

    list: list[FrameRecord]
    page_size: int
    next_page_key: str | None = None


class FindFrames(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /device/{id}/frames/search`."""

    start_timestamp: Moment | None = None
    end_timestamp: Moment | None = None
    page_size: Annotated[int, msgspec.Meta(ge=1, le=MOST_FRAMES)] = 20
    next_key: Annotated[str, msgspec.Meta(max_length=64)] | None = None


class FoundFrames(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A page of frames; with a `next_key` there are older ones."""

    content: list[FrameRecord]
    next_key: str | None = None


MOST_GAPS = 200
"""Gaps of a page."""

GapState = Literal["OPEN", "ASKED", "HEALED", "GIVEN_UP"]


class GapRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Counters of a device that are missing between two of its uplinks. Times are ms."""

    start: int
    """When the last uplink before it was received."""
    end: int
    """When the first one after it was received."""
    counter: int
    """The first that is missing."""
    missing: int
    """How many are. Uplinks for the network alone have counters too, and are not told."""
    state: GapState
    """OPEN until the device is asked for it; HEALED when history has as many readings."""
    asks: int = 0
    """How often it was asked."""
    asked: int | None = None
    """When it was asked last."""
    found: int | None = None
    """Readings that history had in it when it was looked at last."""
    reason: str | None = None
    """Why it is not healed."""


class GapPage(msgspec.Struct, rename="camel", omit_defaults=True):
    """A page; `nextPageKey` is absent on the last one."""

    list: list[GapRecord]
    page_size: int
    next_page_key: str | None = None


class FindGaps(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /device/{id}/gaps/search`."""

    start_timestamp: Moment | None = None
    end_timestamp: Moment | None = None
    page_size: Annotated[int, msgspec.Meta(ge=1, le=MOST_GAPS)] = 20
    next_key: Annotated[str, msgspec.Meta(max_length=64)] | None = None


class FoundGaps(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A page of gaps; with a `next_key` there may be older ones."""

    content: list[GapRecord]
    next_key: str | None = None


State = Literal["RUNNING", "DONE", "STOPPED", "FAILED"]
MOST_DEVICES = 1000
MOST_TOLD = 10_000
"""Reports that one says again before it ends: the stream of events is everybody's."""
SHOWN = 20
"""Differences that are shown."""


class StartRedecode(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST …/codec/redecode`: which frames are read again; all of them by default."""

    dry: bool = False
    """Only count and show what would change."""
    devices: Annotated[list[Id], msgspec.Meta(max_length=MOST_DEVICES)] = []
    """Ids of devices; none is all of the product."""
    start: Moment | None = None
    """Of frames received from then on, ms."""
    end: Moment | None = None
    tell: bool = False
    """Whether reports that are read otherwise are said again: flows that they start run then."""


class Difference(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A frame that is read otherwise than before; None is nothing."""

    device: int
    ts: int
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    reason: str | None = None
    """Why it, or a part of it, is refused now."""


class Redecode(msgspec.Struct, omit_defaults=True, kw_only=True):
    """How far the last redecoding of a product is. Times are ms."""

    state: State
    dry: bool = False
    tell: bool = False
    version: str
    """Of the codec that reads."""
    total: int = 0
    """Devices."""
    done: int = 0
    """Devices that are through."""
    read: int = 0
    """Frames."""
    changed: int = 0
    """Frames that are read otherwise than before."""
    told: int = 0
    """Reports that were said again."""
    differences: list[Difference] = []
    """The first of them."""
    started: int
    ended: int | None = None
    fault: str | None = None
    """Why it failed."""
