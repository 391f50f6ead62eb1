"""Mapping of a webhook body to an uplink, by JSON pointers (RFC 6901) of a preset or a user.

Each field has one or more pointers; the first that leads to a value is used.
"""

import re
from base64 import b64decode
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

from libs.common.clock import parse_time, to_ms
from libs.common.contracts.frames import Reception
from libs.common.contracts.integrations import MISSING_SETTING_CODE
from libs.common.decoding import JSON_ERRORS, decode_json, parse_number
from libs.common.errors import InvalidInput, MalformedRequest
from services.management.networks.messages import (
    FIRST_PORT,
    LAST_PORT,
    InboundMessage,
    create_uplink,
    format_data_rate,
    parse_dev_eui,
    truncate_name,
)

PRESET_SETTING: Final = "preset"
DEVICE, DATA, ENCODING, PORT = "device", "data", "encoding", "port"
TIME, COUNTER, SESSION = "time", "counter", "session"
RSSI, SNR, GATEWAY, DATA_RATE, FREQUENCY = "rssi", "snr", "gateway", "data_rate", "frequency"
REQUIRED_FIELDS = (DEVICE, DATA, PORT)
POINTER_FIELDS = (
    *REQUIRED_FIELDS,
    TIME,
    COUNTER,
    SESSION,
    RSSI,
    SNR,
    GATEWAY,
    DATA_RATE,
    FREQUENCY,
)
HEXADECIMAL_ENCODING: Final = "hex"

CUSTOM_PRESET: Final = "custom"
"""The preset that uses the pointers in the tenant's settings."""
SIGFOX_PRESET: Final = "sigfox"

UPLINK_TYPES_BY_PRESET: Final = {"loriot": ("/cmd", ("rx", "gw"))}
"""By preset: the pointer to the type of a message, and the types that are uplinks."""
PRESETS_WITH_OPTIONAL_DATA: Final = ("helium", "actility", SIGFOX_PRESET)
"""Presets of servers that omit the payload of an uplink if it is empty."""

PointersByField = dict[str, tuple[str, ...]]

POINTERS_BY_PRESET: Final[dict[str, PointersByField]] = {
    "helium": {  # the console of 2020 to 2023, and the current one, which is ChirpStack
        DEVICE: ("/dev_eui", "/deviceInfo/devEui"),
        DATA: ("/payload", "/data"),
        PORT: ("/port", "/fPort"),
        TIME: ("/reported_at", "/time"),
        COUNTER: ("/fcnt", "/fCnt"),
        SESSION: ("/devaddr", "/devAddr"),
        RSSI: ("/hotspots/0/rssi", "/rxInfo/0/rssi"),
        SNR: ("/hotspots/0/snr", "/rxInfo/0/snr"),
        GATEWAY: ("/hotspots/0/name", "/rxInfo/0/gatewayId"),
        DATA_RATE: ("/hotspots/0/spreading", "/txInfo/modulation/lora/spreadingFactor"),
        FREQUENCY: ("/hotspots/0/frequency", "/txInfo/frequency"),
    },
    "loriot": {  # `rx`, or `gw` with a list of gateways
        DEVICE: ("/EUI",),
        DATA: ("/data",),
        ENCODING: (HEXADECIMAL_ENCODING,),
        PORT: ("/port",),
        TIME: ("/ts",),
        COUNTER: ("/fcnt",),
        RSSI: ("/rssi", "/gws/0/rssi"),
        SNR: ("/snr", "/gws/0/snr"),
        GATEWAY: ("/gws/0/gweui",),
        DATA_RATE: ("/dr",),
        FREQUENCY: ("/freq",),
    },
    "actility": {
        DEVICE: ("/DevEUI_uplink/DevEUI",),
        DATA: ("/DevEUI_uplink/payload_hex",),
        ENCODING: (HEXADECIMAL_ENCODING,),
        PORT: ("/DevEUI_uplink/FPort",),
        TIME: ("/DevEUI_uplink/Time",),
        COUNTER: ("/DevEUI_uplink/FCntUp",),
        SESSION: ("/DevEUI_uplink/DevAddr",),
        RSSI: ("/DevEUI_uplink/LrrRSSI",),
        SNR: ("/DevEUI_uplink/LrrSNR",),
        GATEWAY: ("/DevEUI_uplink/Lrrid",),
        DATA_RATE: ("/DevEUI_uplink/SpFact",),
        FREQUENCY: ("/DevEUI_uplink/Frequency",),
    },
    SIGFOX_PRESET: {  # names of Sigfox variables; a Sigfox message has no port
        DEVICE: ("/device",),
        DATA: ("/data",),
        ENCODING: (HEXADECIMAL_ENCODING,),
        PORT: ("1",),
        TIME: ("/time",),
        COUNTER: ("/seqNumber",),
        RSSI: ("/rssi",),
        SNR: ("/snr",),
        GATEWAY: ("/station",),
    },
}

MAX_NUMBER = 1e300
"""Numbers of this size or greater are rejected."""
MIN_VALID_YEAR = 2000
"""Times of earlier years come from a clock that was never set, and identify no uplink."""
MAX_FRAME_COUNTER = 2**32 - 1
DEV_EUI_DIGITS = 16
"""Digits of a DevEUI. A Sigfox ID is padded to this length with leading zeros."""
_FREQUENCY_SCALES = ((1e4, 1e6), (1e7, 1e3))
"""Pairs of a bound, and the factor to Hz of numbers below it: MHz, then kHz."""
_DATA_RATE_PATTERN = re.compile(r"SF ?([0-9]{1,2}) ?BW ?([0-9]{1,4})")
_SPREADING_FACTOR_PATTERN = re.compile("[5-9]|1[0-2]")
_DIGITS_PATTERN = re.compile(r"[0-9]{1,10}")
_MISSING = object()
_EMPTY_TEXTS = ("", "null")
"""Values that servers send for a missing value."""
_HEXADECIMAL_SEPARATORS = re.compile(r"[\s:-]")
_URL_SAFE_TO_STANDARD = str.maketrans("-_", "+/")


def check_pointers(settings: dict[str, Any]) -> None:
    """Raise `InvalidInput` unless settings are pointers; `port` may be a number."""
    for key in POINTER_FIELDS:
        text = str(settings.get(key) or "").strip()
        if (
            text
            and not text.startswith("/")
            and not (key == PORT and _DIGITS_PATTERN.fullmatch(text))
        ):
            raise InvalidInput("must be a JSON pointer, such as /uplink/data", field=key)


def map_body_to_uplink(tenant: str, body: bytes, settings: dict[str, str]) -> InboundMessage | None:
    """Return the uplink in a body; None for another message, or a frame of the network.

    Optional fields that cannot be decoded are omitted, and listed in the result. Raises
    `InvalidInput` for a missing setting, or an invalid field of the body.
    """
    preset = settings.get(PRESET_SETTING) or CUSTOM_PRESET
    fields = POINTERS_BY_PRESET.get(preset) or _read_custom_pointers(settings)
    try:
        content = decode_json(body)
    except JSON_ERRORS as error:
        raise MalformedRequest(f"is not JSON: {error}", field="body") from error
    where, uplinks = UPLINK_TYPES_BY_PRESET.get(preset, ("", ()))
    if where and follow_pointer(content, where) not in (*uplinks, _MISSING):
        return None
    picked = _MappedBody(content, fields)
    port = picked.get_port()
    if port is None:
        return None
    uplink = create_uplink(
        tenant,
        "",
        port=port,
        data=picked.get_payload(
            hexadecimal=fields.get(ENCODING) == (HEXADECIMAL_ENCODING,),
            optional=preset in PRESETS_WITH_OPTIONAL_DATA,
        ),
        time=picked.get_time(),
        frequency=picked.get_frequency_hz(),
        data_rate=picked.get_data_rate(),
        gateways=picked.get_gateways(),
        **picked.get_counter_and_session(),
    )
    if uplink is None:
        return None
    device = picked.get_required(DEVICE)
    if preset == SIGFOX_PRESET:
        device = str(device).zfill(DEV_EUI_DIGITS)
    uplink.identifier = parse_dev_eui(str(device), fields[DEVICE][0])
    return InboundMessage(uplink, unreadable="; ".join(picked.unreadable))


def _read_custom_pointers(settings: dict[str, str]) -> PointersByField:
    """Return the pointers in the settings; raise `InvalidInput` if a required one is missing."""
    for key in REQUIRED_FIELDS:
        if not settings.get(key):
            raise InvalidInput("is not set", field=key, code=MISSING_SETTING_CODE)
    return {key: (text,) for key in (*POINTER_FIELDS, ENCODING) if (text := settings.get(key))}


def follow_pointer(value: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer in `value`; `_MISSING` if it leads to none."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key, _MISSING)
        elif isinstance(value, list) and _DIGITS_PATTERN.fullmatch(key):
            value = value[int(key)] if int(key) < len(value) else _MISSING
        else:
            return _MISSING
    return value


class _MappedBody:
    """The values of a body by field, and its invalid fields."""

    def __init__(self, content: Any, fields: PointersByField) -> None:
        self._given = content
        self._fields = fields
        self.unreadable: list[str] = []

    def _find_value(self, key: str) -> tuple[str, Any]:
        """Return the first pointer that leads to a value, and the value or None."""
        pointers = self._fields.get(key, ())
        for pointer in pointers:
            value = follow_pointer(self._given, pointer)
            if (
                value is not _MISSING
                and value is not None
                and (key == DATA or value not in _EMPTY_TEXTS)
            ):
                return pointer, value
        return next(iter(pointers), ""), None

    def _record_unreadable(self, pointer: str, reason: str) -> None:
        self.unreadable.append(f"{pointer} {reason}")

    def get_required(self, key: str) -> Any:
        """Return a value; raise `InvalidInput` if the body lacks it."""
        pointer, value = self._find_value(key)
        if value is None:
            raise InvalidInput("is missing", field=pointer)
        return value

    def get_text(self, key: str) -> str:
        pointer, value = self._find_value(key)
        if value is None or isinstance(value, bool) or not isinstance(value, str | int | float):
            if value is not None:
                self._record_unreadable(pointer, "must be text")
            return ""
        return truncate_name(str(value))

    def get_number(self, key: str) -> float | None:
        """Return a number, also from text."""
        pointer, value = self._find_value(key)
        number: Any = parse_number(value.strip()) if isinstance(value, str) else value
        if type(number) in {int, float} and abs(number) < MAX_NUMBER:
            return float(number)
        if value is not None:
            self._record_unreadable(pointer, "must be a number")
        return None

    def get_whole_number(self, key: str, maximum: int) -> int | None:
        number = self.get_number(key)
        if number is None:
            return None
        if number != int(number) or not 0 <= number <= maximum:
            self._record_unreadable(
                self._find_value(key)[0], f"must be a whole number of 0 to {maximum}"
            )
            return None
        return int(number)

    def get_port(self) -> int | None:
        """Return the port; None if the body has none, or for a port of the network.

        An invalid port counts as the first port.
        """
        if not self._fields[PORT][0].startswith("/"):
            return int(self._fields[PORT][0])
        if self._find_value(PORT)[1] is None:
            return None
        port = self.get_number(PORT)
        if port is not None and port != int(port):
            self._record_unreadable(self._find_value(PORT)[0], "must be a whole number")
            port = None
        if port is None:
            return FIRST_PORT
        return int(port) if FIRST_PORT <= port <= LAST_PORT else None

    def get_payload(self, *, hexadecimal: bool, optional: bool) -> bytes:
        """Return the payload; base64 may lack padding, hexadecimal may have `0x` and separators."""
        pointer, text = self._find_value(DATA)
        if text is None and optional:
            return b""
        text = self.get_required(DATA)
        if not isinstance(text, str):
            raise InvalidInput("must be text", field=pointer)
        try:
            if hexadecimal:
                return bytes.fromhex(
                    _HEXADECIMAL_SEPARATORS.sub("", text.strip().removeprefix("0x"))
                )
            digits = "".join(text.split()).translate(_URL_SAFE_TO_STANDARD).rstrip("=")
            return b64decode(digits + "=" * (-len(digits) % 4), validate=True)
        except ValueError as error:
            kind = "hexadecimal" if hexadecimal else "base64"
            raise InvalidInput(f"is not {kind}", field=pointer) from error

    def get_time(self) -> datetime | None:
        """Return the time, which may be given in ISO 8601, seconds or ms."""
        pointer, value = self._find_value(TIME)
        time = parse_time(value)
        if time is None and value is not None:
            self._record_unreadable(pointer, "must be a time: ISO 8601, seconds or milliseconds")
        return time

    def get_frequency_hz(self) -> int | None:
        """Return the frequency in Hz, converted from MHz or kHz."""
        number = self.get_number(FREQUENCY)
        if number is None or number <= 0:
            return None
        scale = next((scale for maximum, scale in _FREQUENCY_SCALES if number < maximum), 1)
        return round(number * scale)

    def get_data_rate(self) -> str:
        """Return the data rate, such as `SF7BW125`, or `SF7` without a bandwidth."""
        text = self.get_text(DATA_RATE)
        if match := _DATA_RATE_PATTERN.match(text):
            return format_data_rate(int(match[1]), int(match[2]) * 1000)
        return f"SF{text}" if _SPREADING_FACTOR_PATTERN.fullmatch(text) else text

    def get_counter_and_session(self) -> dict[str, Any]:
        """Return counter and session, which identify an uplink.

        A counter alone does not, because a device restarts it when it joins again. If session or
        counter is missing, the time replaces the session. Without a time, a random text does, so
        each delivery is a new uplink.
        """
        counter, session = self.get_whole_number(COUNTER, MAX_FRAME_COUNTER), self.get_text(SESSION)
        time = parse_time(self._find_value(TIME)[1])
        if time is not None and time.year < MIN_VALID_YEAR:
            time = None
        if time is not None and (counter is None or not session):
            session = str(to_ms(time))
        elif counter is None or not session:
            session = str(uuid4())
        return {"counter": counter or 0, "session": session}

    def get_gateways(self) -> list[Reception]:
        gateway, rssi, snr = self.get_text(GATEWAY), self.get_number(RSSI), self.get_number(SNR)
        is_known = bool(gateway) or rssi is not None or snr is not None
        return [Reception(gateway=gateway, rssi=rssi, snr=snr)] if is_known else []
