"""Messages of network servers, in a common form."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from libs.common.clock import parse_time, to_ms
from libs.common.contracts.frames import (
    MAX_FRAME_BYTES,
    MAX_GATEWAYS,
    DeviceFrame,
    Downlink,
    Frame,
    Reception,
    SendDownlinkState,
    SendLinkState,
)
from libs.common.decoding import JSON_ERRORS
from libs.common.errors import InvalidInput, MalformedRequest

MAX_NAME_CHARACTERS = 128
FIRST_PORT, LAST_PORT = 1, 223
"""Ports of applications; 0 is for commands of the network, 224 for tests."""
RADIO_FIELDS = frozenset({"rxInfo", "txInfo", "rx_metadata", "settings"})
"""Names that network servers use for the fields with radio metadata of an uplink."""
MAX_IGNORED_RADIO_FIELDS = 32
"""Maximum number of invalid radio fields that are ignored in a body."""
_PATH_STEP = re.compile(r"\.(\w+)|\[([0-9]+)\]")
_HERTZ_PER_KHZ = 1000
_EUI_PATTERN = re.compile("[0-9A-F]{16}")
_EUI_SEPARATORS = re.compile(r"[\s:.-]")
_UNKNOWN_STRENGTH_DBM = -1000.0
"""Strength for sorting receptions without one: below that of any real reception."""


class DownlinkRoute(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The destination of a device's downlinks at its network server."""

    application: str = ""
    device: str = ""
    """Id of the device at the server, if that is not its DevEUI."""
    protobuf: bool = False
    """Whether the network server encodes its messages in protobuf."""


DeviceReport = DeviceFrame | SendLinkState | SendDownlinkState


class InboundMessage(NamedTuple):
    """A report of a device; a downlink is identified by its reference at the server."""

    report: DeviceReport
    route: DownlinkRoute | None = None
    unreadable: str = ""
    """Optional fields that could not be decoded, with the reasons."""


class Publication(NamedTuple):
    """A message to publish to a server."""

    topic: str
    payload: bytes


class OutboundDownlink(NamedTuple):
    """A downlink for a device, with its reference at the server (a UUID)."""

    identifier: str
    route: DownlinkRoute
    downlink: Downlink
    reference: str


def parse_dev_eui(text: str, field: str) -> str:
    """Return a DevEUI as 16 upper-case hexadecimal digits; raise `InvalidInput`."""
    digits = _EUI_SEPARATORS.sub("", text)
    digits = digits.upper() if digits.isascii() else ""
    if not _EUI_PATTERN.fullmatch(digits):
        raise InvalidInput("must be a DevEUI: 16 hexadecimal digits", field=field)
    return digits


def parse_time_ms(value: Any) -> int | None:
    """Return a time in ms, or None if it is invalid (`parse_time`)."""
    time = parse_time(value)
    return None if time is None else to_ms(time)


def create_uplink(
    tenant: str,
    identifier: str,
    *,
    port: int,
    data: bytes,
    counter: int,
    time: datetime | None,
    data_rate: str = "",
    gateways: Iterable[Reception] = (),
    **more: Any,
) -> DeviceFrame | None:
    """Return a frame within the limits of the bus; None for a frame of the network itself.

    Raises `InvalidInput` for a value outside of the limits.
    """
    if not FIRST_PORT <= port <= LAST_PORT:
        return None
    if len(data) > MAX_FRAME_BYTES:
        raise InvalidInput(f"has more than {MAX_FRAME_BYTES} bytes", field="data")
    if not 0 <= counter < 2**32:
        raise InvalidInput("must be a frame counter of 32 bits", field="counter")
    frame = Frame(
        port=port,
        data=data,
        counter=counter,
        ts=None if time is None else to_ms(time),
        data_rate=truncate_name(data_rate),
        gateways=sorted(gateways, key=_signal_strength, reverse=True)[:MAX_GATEWAYS],
        **more,
    )
    return DeviceFrame(tenant=tenant, identifier=identifier, frame=frame)


def _signal_strength(reception: Reception) -> float:
    return _UNKNOWN_STRENGTH_DBM if reception.rssi is None else reception.rssi


def truncate_name(text: str) -> str:
    """Return a name that a server sent, truncated to the limit of the bus."""
    return text[:MAX_NAME_CHARACTERS]


def format_data_rate(spreading: int, bandwidth_hz: int) -> str:
    """Return a LoRa data rate, such as `SF7BW125`."""
    return f"SF{spreading}BW{bandwidth_hz // _HERTZ_PER_KHZ}"


def decode_ignoring_invalid_radio(decoder: "msgspec.json.Decoder[Any]", body: bytes) -> Any:
    """Decode a body to the decoder's struct; raise `MalformedRequest` with the invalid place.

    Invalid radio fields are omitted, so that they do not cost an uplink.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        struct = _convert_without_invalid_radio(decoder, msgspec.json.decode(body))
        if struct is None:
            raise MalformedRequest(f"cannot be decoded: {error}") from error
        return struct
    except JSON_ERRORS as error:
        raise MalformedRequest(f"cannot be decoded: {error}") from error


def _convert_without_invalid_radio(decoder: "msgspec.json.Decoder[Any]", body: Any) -> Any:
    """Return the struct of a decoded body without invalid radio fields.

    Returns None if another field is invalid.
    """
    for _ in range(MAX_IGNORED_RADIO_FIELDS):
        try:
            return msgspec.convert(body, decoder.type, strict=decoder.strict)
        except msgspec.ValidationError as error:
            steps = _PATH_STEP.findall(str(error).partition(" - at `$")[2])
            if not RADIO_FIELDS & {key for key, _ in steps} or not steps[-1][0]:
                return None
            place = body
            for key, index in steps[:-1]:
                place = place[key or int(index)]
            del place[steps[-1][0]]
    return None
