"""Schemas of codecs, frames, gaps and re-decode jobs."""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.contracts.frames import Reception
from libs.common.http.ids import Id
from services.device.telemetry.history import RequestedRange, TimestampMs
from services.device.things.codec_model import MAX_SCRIPTS, Name, OptionalSteps, Script
from services.device.things.product_model import MAX_EXAMPLES, CodecExample, CodecFrame


class PutCodec(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `PUT …/codec`: one `script`, or several `scripts` by name.

    Without `decoder`, entry points of TS013 or of the older conventions are used.
    """

    script: Script | None = None
    """JavaScript source of a codec with a single script."""
    scripts: Annotated[dict[Name, Script], msgspec.Meta(max_length=MAX_SCRIPTS)] = {}
    decoder: OptionalSteps = []
    encoder: OptionalSteps = []
    examples: Annotated[list[CodecExample], msgspec.Meta(max_length=MAX_EXAMPLES)] = []


class GapHealingSettings(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Whether and how often devices receive requests for missing readings."""

    on: bool
    """Whether devices receive requests for missing readings."""
    hour: int
    """Maximum requests to one device within an hour."""
    day: int
    """Maximum requests to one device within 24 hours."""
    service: str | None = None
    """Service that requests the readings. Absent if the codec has none."""
    fault: str | None = None
    """Why the service cannot be used."""


class TestCodec(CodecFrame, kw_only=True):
    """Body of `POST …/codec/test`: a frame to decode, or values to encode for a port."""

    values: dict[str, Any] | None = None
    """Values to encode by property key."""
    codec: PutCodec | None = None
    """Codec to test instead of the product's; it is not stored."""


CODEC_EXAMPLE = {
    "script": "function decodeUplink(input) {"
    " return {data: {temperature: (input.bytes[0] << 8 | input.bytes[1]) / 10}} } "
    "function encodeDownlink(input) {"
    " return {bytes: [1, input.data.reporting_interval.time], fPort: 2} }",
    "examples": [{"port": 2, "hex": "00d7", "expected": {"temperature": 21.5}}],
}
"""A codec of TS013."""
CODEC_TEST_EXAMPLE = {"port": 2, "hex": "00d7"}
HEALING_EXAMPLE = {"on": False, "hour": 2, "day": 10}


class CodecFault(msgspec.Struct):
    """A value that the TSL rejects, such as `properties.temperature`."""

    field: str
    reason: str


class PastReading(msgspec.Struct):
    """Values that a device had recorded earlier; `ts` in ms."""

    ts: int
    values: dict[str, Any]
    """Values by property key."""


class CodecTestResult(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Result of a codec test, with `fault` if the codec failed."""

    fault: str | None = None
    """Reason of the failure. Absent after success."""
    warnings: list[str] = []
    """Warnings of the codec."""
    properties: dict[str, Any] | None = None
    """Decoded values."""
    accepted: dict[str, Any] | None = None
    """Decoded values that the current TSL accepts, as they would be stored."""
    history: list[PastReading] = []
    """Past readings in the frame, which history stores within the retention."""
    refused: list[CodecFault] = []
    """Values that the TSL rejects."""
    port: int | None = None
    hex: str | None = None
    """Encoded bytes."""
    base64: str | None = None
    """Encoded bytes."""
    log: list[str] = []
    """Console output of the codec: at most 100 lines of 500 characters."""


MAX_PAGE_SIZE = 200
"""Maximum frames or gaps of a page."""


class FrameRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An uplink with its decoded values."""

    ts: int
    """Time at which the network server received the uplink, in ms."""
    port: int
    hex: str
    """Payload bytes."""
    session: str = ""
    """Id of the network session, which changes when the device joins."""
    counter: int
    confirmed: bool = False
    """Whether the device requested an acknowledgement."""
    rate: str = ""
    """Data rate, such as `SF7BW125`."""
    frequency: int | None = None
    """Frequency in Hz."""
    gateways: list[Reception] = []
    """Gateways that received the frame, with RSSI in dBm and SNR in dB."""
    values: dict[str, Any] | None = None
    """Decoded values, as they are stored."""
    reason: str | None = None
    """Why it was rejected in whole or in part."""
    codec: str = ""
    """Version of the codec that decoded it; empty without a codec."""


class FramePage(msgspec.Struct, rename="camel", omit_defaults=True):
    """A page of frames; `nextPageKey` is absent on the last page."""

    list: list[FrameRecord]
    page_size: int
    next_page_key: str | None = None


class FindFrames(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /device/{id}/frames/search`."""

    start_timestamp: TimestampMs | None = None
    end_timestamp: TimestampMs | None = None
    page_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_SIZE)] = 20
    next_key: Annotated[str, msgspec.Meta(max_length=64)] | None = None

    @property
    def bounds(self) -> RequestedRange:
        """Return start and end in ms, and the key of the page."""
        return self.start_timestamp, self.end_timestamp, self.next_key


class FoundFrames(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A page of frames; `next_key` is absent on the last page."""

    content: list[FrameRecord]
    next_key: str | None = None


GapState = Literal["OPEN", "ASKED", "HEALED", "GIVEN_UP"]


class GapRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Missing counters between two uplinks of a device. Times are ms."""

    start: int
    """When the last uplink before the gap was received."""
    end: int
    """When the first uplink after the gap was received."""
    counter: int
    """The first missing counter."""
    missing: int
    """Number of missing counters, including those of frames for the network itself (port 0)."""
    state: GapState
    """`OPEN`: no request is running. `ASKED`: a request is running. `HEALED`: history has at least
    as many readings as counters are missing. `GIVEN_UP`: there will be no further request."""
    asks: int = 0
    """Number of requests to the device."""
    asked: int | None = None
    """Time of the last request to the device."""
    found: int | None = None
    """Number of readings within the gap that history had at the last check."""
    reason: str | None = None
    """Why it is not healed."""


class GapPage(msgspec.Struct, rename="camel", omit_defaults=True):
    """A page of gaps; `nextPageKey` is absent on the last page."""

    list: list[GapRecord]
    page_size: int
    next_page_key: str | None = None


class FindGaps(FindFrames, kw_only=True):
    """Body of `POST /device/{id}/gaps/search`."""


class FoundGaps(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A page of gaps; without `next_key` it is the last page."""

    content: list[GapRecord]
    next_key: str | None = None


RedecodeState = Literal["RUNNING", "DONE", "STOPPED", "FAILED"]
MAX_REDECODED_DEVICES = 1000
MAX_REPUBLISHED = 10_000
"""Maximum number of reports that a job publishes again."""
MAX_DIFFERENCES = 20
"""Maximum number of differences that a job shows."""


class StartRedecode(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST …/codec/redecode`; selects all stored frames by default."""

    dry: bool = False
    """Only count and show differences."""
    devices: Annotated[list[Id], msgspec.Meta(max_length=MAX_REDECODED_DEVICES)] = []
    """Device ids; empty means all devices of the product."""
    start: TimestampMs | None = None
    """Earliest time of reception, ms."""
    end: TimestampMs | None = None
    """Latest time of reception, ms."""
    tell: bool = False
    """Whether to publish changed reports again, which may start flows."""


class RedecodeDifference(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A report that differs from history; `before` or `after` is absent if it has no values."""

    device: int
    """Id of the device."""
    ts: int
    before: dict[str, Any] | None = None
    """Values in history by property key."""
    after: dict[str, Any] | None = None
    """Values that the codec returns now, by property key."""
    reason: str | None = None
    """Why the frame is rejected now, in whole or in part."""


class RedecodeProgress(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The last re-decode job of a product. Times are ms."""

    state: RedecodeState
    """`RUNNING`, `DONE`, `STOPPED` by a user, or `FAILED`."""
    dry: bool = False
    """Whether the job only counts and shows differences."""
    tell: bool = False
    """Whether changed reports are published again."""
    version: str
    """Version of the codec."""
    total: int = 0
    """Number of devices."""
    done: int = 0
    """Number of finished devices."""
    read: int = 0
    """Number of decoded frames."""
    changed: int = 0
    """Number of frames whose values differ from history."""
    told: int = 0
    """Number of reports that were published again."""
    differences: list[RedecodeDifference] = []
    """The first differences, without those of devices that the caller may not see."""
    started: int
    """Time of the start in milliseconds since 1970-01-01 UTC."""
    ended: int | None = None
    """Time of the end in milliseconds since 1970-01-01 UTC."""
    fault: str | None = None
    """Why it failed."""
