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
from libs.common.contracts.integrations import NOT_SET
from libs.common.decoding import INVALID_JSON, decode_json, parse_number
from libs.common.errors import InvalidInput, MalformedRequest
from services.management.networks.messages import (
    FIRST_PORT,
    LAST_PORT,
    InboundMessage,
    create_uplink,
    cut_name,
    format_data_rate,
    parse_dev_eui,
)

PRESET: Final = "preset"
DEVICE, DATA, ENCODING, PORT = "device", "data", "encoding", "port"
TIME, COUNTER, SESSION = "time", "counter", "session"
RSSI, SNR, GATEWAY, DATA_RATE, FREQUENCY = "rssi", "snr", "gateway", "data_rate", "frequency"
REQUIRED_FIELDS = (DEVICE, DATA, PORT)
POINTERS = (*REQUIRED_FIELDS, TIME, COUNTER, SESSION, RSSI, SNR, GATEWAY, DATA_RATE, FREQUENCY)
HEX: Final = "hex"

CUSTOM: Final = "custom"
"""The preset with the user's pointers."""
SIGFOX: Final = "sigfox"

UPLINKS: Final = {"loriot": ("/cmd", ("rx", "gw"))}
"""The pointer to the type of a message, and the types of uplinks, by server."""
WITHOUT_DATA: Final = ("helium", "actility", SIGFOX)
"""Servers that omit the data of an uplink without bytes."""

Fields = dict[str, tuple[str, ...]]

PRESETS: Final[dict[str, Fields]] = {
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
        ENCODING: (HEX,),
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
        ENCODING: (HEX,),
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
    SIGFOX: {  # names of Sigfox variables; a Sigfox message has no port
        DEVICE: ("/device",),
        DATA: ("/data",),
        ENCODING: (HEX,),
        PORT: ("1",),
        TIME: ("/time",),
        COUNTER: ("/seqNumber",),
        RSSI: ("/rssi",),
        SNR: ("/snr",),
        GATEWAY: ("/station",),
    },
}

MAX_NUMBER = 1e300
"""Maximum of numbers; greater ones are rejected."""
FIRST_YEAR = 2000
"""Earlier times come from a clock that was never set, and do not distinguish uplinks."""
LAST_COUNTER = 2**32 - 1
SIGFOX_ZEROS = 16
"""Digits of a DevEUI, to which a Sigfox ID is extended with leading zeros."""
_UNITS = ((1e4, 1e6), (1e7, 1e3))
"""Frequencies below the first bound are in MHz, frequencies below the second in kHz."""
_DATA_RATE = re.compile(r"SF ?([0-9]{1,2}) ?BW ?([0-9]{1,4})")
_SPREADING_FACTOR = re.compile("[5-9]|1[0-2]")
_DIGITS = re.compile(r"[0-9]{1,10}")
_MISSING = object()
_EMPTY_TEXTS = ("", "null")
"""Values that servers send for a missing value."""
_SEPARATORS = re.compile(r"[\s:-]")
_URL_SAFE = str.maketrans("-_", "+/")


def check_settings(settings: dict[str, Any]) -> None:
    """Raise `InvalidInput` unless settings are pointers; `port` may be a number."""
    for key in POINTERS:
        text = str(settings.get(key) or "").strip()
        if text and not text.startswith("/") and not (key == PORT and _DIGITS.fullmatch(text)):
            raise InvalidInput("must be a JSON pointer, such as /uplink/data", field=key)


def read_body(tenant: str, body: bytes, settings: dict[str, str]) -> InboundMessage | None:
    """Return the uplink in a body; None for another message, or a frame of the network.

    Optional fields that cannot be decoded are omitted, and listed in the result. Raises
    `InvalidInput` for a missing setting, or an invalid field of the body.
    """
    preset = settings.get(PRESET) or CUSTOM
    fields = PRESETS.get(preset) or _own_fields(settings)
    try:
        content = decode_json(body)
    except INVALID_JSON as error:
        raise MalformedRequest(f"is not JSON: {error}", field="body") from error
    where, uplinks = UPLINKS.get(preset, ("", ()))
    if where and follow_pointer(content, where) not in (*uplinks, _MISSING):
        return None
    picked = _MappedBody(content, fields)
    port = picked.port()
    if port is None:
        return None
    uplink = create_uplink(
        tenant,
        "",
        port=port,
        data=picked.data(
            hexadecimal=fields.get(ENCODING) == (HEX,), optional=preset in WITHOUT_DATA
        ),
        time=picked.time(),
        frequency=picked.frequency(),
        data_rate=picked.data_rate(),
        gateways=picked.gateways(),
        **picked.identity(),
    )
    if uplink is None:
        return None
    device = picked.require(DEVICE)
    if preset == SIGFOX:
        device = str(device).zfill(SIGFOX_ZEROS)
    uplink.identifier = parse_dev_eui(str(device), fields[DEVICE][0])
    return InboundMessage(uplink, unreadable="; ".join(picked.unreadable))


def _own_fields(settings: dict[str, str]) -> Fields:
    """Return the pointers that a user has set; raise `InvalidInput` for a missing one."""
    for key in REQUIRED_FIELDS:
        if not settings.get(key):
            raise InvalidInput("is not set", field=key, code=NOT_SET)
    return {key: (text,) for key in (*POINTERS, ENCODING) if (text := settings.get(key))}


def follow_pointer(value: Any, pointer: str) -> Any:
    """Return the value of a pointer, or `_MISSING`."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key, _MISSING)
        elif isinstance(value, list) and _DIGITS.fullmatch(key):
            value = value[int(key)] if int(key) < len(value) else _MISSING
        else:
            return _MISSING
    return value


class _MappedBody:
    """The values of a body by field, and its invalid fields."""

    def __init__(self, content: Any, fields: Fields) -> None:
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

    def _leave_out(self, pointer: str, reason: str) -> None:
        self.unreadable.append(f"{pointer} {reason}")

    def require(self, key: str) -> Any:
        """Return a value; raise `InvalidInput` without one."""
        pointer, value = self._find_value(key)
        if value is None:
            raise InvalidInput("is missing", field=pointer)
        return value

    def text(self, key: str) -> str:
        pointer, value = self._find_value(key)
        if value is None or isinstance(value, bool) or not isinstance(value, str | int | float):
            if value is not None:
                self._leave_out(pointer, "must be text")
            return ""
        return cut_name(str(value))

    def number(self, key: str) -> float | None:
        """Return a number, also from text."""
        pointer, value = self._find_value(key)
        number: Any = parse_number(value.strip()) if isinstance(value, str) else value
        if type(number) in {int, float} and abs(number) < MAX_NUMBER:
            return float(number)
        if value is not None:
            self._leave_out(pointer, "must be a number")
        return None

    def whole(self, key: str, maximum: int) -> int | None:
        number = self.number(key)
        if number is None:
            return None
        if number != int(number) or not 0 <= number <= maximum:
            self._leave_out(self._find_value(key)[0], f"must be a whole number of 0 to {maximum}")
            return None
        return int(number)

    def port(self) -> int | None:
        """Return the port; None without one, or for a port of the network.

        An invalid port counts as the first port.
        """
        if not self._fields[PORT][0].startswith("/"):
            return int(self._fields[PORT][0])
        if self._find_value(PORT)[1] is None:
            return None
        port = self.number(PORT)
        if port is not None and port != int(port):
            self._leave_out(self._find_value(PORT)[0], "must be a whole number")
            port = None
        if port is None:
            return FIRST_PORT
        return int(port) if FIRST_PORT <= port <= LAST_PORT else None

    def data(self, *, hexadecimal: bool, optional: bool) -> bytes:
        """Return the payload; base64 may lack padding, hexadecimal may have `0x` and separators."""
        pointer, text = self._find_value(DATA)
        if text is None and optional:
            return b""
        text = self.require(DATA)
        if not isinstance(text, str):
            raise InvalidInput("must be text", field=pointer)
        try:
            if hexadecimal:
                return bytes.fromhex(_SEPARATORS.sub("", text.strip().removeprefix("0x")))
            digits = "".join(text.split()).translate(_URL_SAFE).rstrip("=")
            return b64decode(digits + "=" * (-len(digits) % 4), validate=True)
        except ValueError as error:
            kind = "hexadecimal" if hexadecimal else "base64"
            raise InvalidInput(f"is not {kind}", field=pointer) from error

    def time(self) -> datetime | None:
        """Return the time in ISO 8601, seconds or ms."""
        pointer, value = self._find_value(TIME)
        time = parse_time(value)
        if time is None and value is not None:
            self._leave_out(pointer, "must be a time: ISO 8601, seconds or milliseconds")
        return time

    def frequency(self) -> int | None:
        """Return the frequency in Hz, converted from MHz or kHz."""
        number = self.number(FREQUENCY)
        if number is None or number <= 0:
            return None
        scale = next((scale for maximum, scale in _UNITS if number < maximum), 1)
        return round(number * scale)

    def data_rate(self) -> str:
        """Return the data rate, such as `SF7BW125`, or `SF7` without a bandwidth."""
        text = self.text(DATA_RATE)
        if match := _DATA_RATE.match(text):
            return format_data_rate(int(match[1]), int(match[2]) * 1000)
        return f"SF{text}" if _SPREADING_FACTOR.fullmatch(text) else text

    def identity(self) -> dict[str, Any]:
        """Return counter and session, which identify an uplink.

        The session is the time if there is none, or a random id without a counter and a time.
        Without a session, uplinks with equal counters are duplicates only at the same time, because
        a device that joins again restarts its counter.
        """
        counter, session = self.whole(COUNTER, LAST_COUNTER), self.text(SESSION)
        time = parse_time(self._find_value(TIME)[1])
        if time is not None and time.year < FIRST_YEAR:
            time = None
        if time is not None and (counter is None or not session):
            session = str(to_ms(time))
        elif counter is None:
            session = str(uuid4())
        return {"counter": counter or 0, "session": session}

    def gateways(self) -> list[Reception]:
        gateway, rssi, snr = self.text(GATEWAY), self.number(RSSI), self.number(SNR)
        is_known = bool(gateway) or rssi is not None or snr is not None
        return [Reception(gateway=gateway, rssi=rssi, snr=snr)] if is_known else []
