"""Fields of an uplink in the body of a webhook: JSON pointers (RFC 6901), set or of a preset.

Each field has one pointer or several, of which the first that leads to a value counts.
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
NEEDED = (DEVICE, DATA, PORT)
POINTERS = (*NEEDED, TIME, COUNTER, SESSION, RSSI, SNR, GATEWAY, DATA_RATE, FREQUENCY)
HEX: Final = "hex"

CUSTOM: Final = "custom"
"""The pointers that the user sets."""
SIGFOX: Final = "sigfox"
NAMES: Final = {
    CUSTOM: "Own JSON pointers",
    "helium": "Helium",
    "loriot": "LORIOT",
    "actility": "Actility ThingPark",
    SIGFOX: "Sigfox",
}

UPLINKS: Final = {"loriot": ("/cmd", ("rx", "gw"))}
"""Where a server says what a message is, and which ones are uplinks."""
WITHOUT_DATA: Final = ("helium", "actility", SIGFOX)
"""Servers that leave the data out where an uplink has no bytes."""

Fields = dict[str, tuple[str, ...]]

PRESETS: Final[dict[str, Fields]] = {
    "helium": {  # the console of 2020 to 2023, and today's, which is ChirpStack
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
    SIGFOX: {  # the names of its variables; a Sigfox message has no port
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

LONGEST = 256
"""Characters of a pointer."""
LARGEST = 1e300
"""Numbers beyond it, and those that are none, are not read."""
FIRST_YEAR = 2000
"""A time before it is that of a clock which was never set, and the same for each uplink."""
LAST_COUNTER = 2**32 - 1
SIGFOX_ZEROS = 16
"""Digits of the DevEUI that a Sigfox ID becomes, with zeros in front."""
_UNITS = ((1e4, 1e6), (1e7, 1e3))
"""Frequencies below the first are in MHz, below the second in kHz."""
_DATA_RATE = re.compile(r"SF ?([0-9]{1,2}) ?BW ?([0-9]{1,4})")
_FACTOR = re.compile("[5-9]|1[0-2]")
_DIGITS = re.compile(r"[0-9]{1,10}")
_MISSING = object()
_NOTHING = ("", "null")
"""What servers write where they have no value."""
_SEPARATORS = re.compile(r"[\s:-]")
_URL_SAFE = str.maketrans("-_", "+/")


def check_settings(settings: dict[str, Any]) -> None:
    """Raise `InvalidInput` naming a setting that is no pointer; `port` may be a number."""
    for key in POINTERS:
        text = str(settings.get(key) or "").strip()
        if text and not text.startswith("/") and not (key == PORT and _DIGITS.fullmatch(text)):
            raise InvalidInput("must be a JSON pointer, as /uplink/data", field=key)


def read_body(tenant: str, body: bytes, settings: dict[str, str]) -> InboundMessage | None:
    """Return an uplink of a body; None for one of the network's own, without a port, or no uplink.

    An optional field that cannot be read is left out, and named in what is returned. Raises
    `InvalidInput` naming the setting that is missing, or the field of the body at fault.
    """
    preset = settings.get(PRESET) or CUSTOM
    fields = PRESETS.get(preset) or _own_fields(settings)
    try:
        given = decode_json(body)
    except INVALID_JSON as error:
        raise MalformedRequest(f"is no JSON: {error}", field="body") from error
    where, uplinks = UPLINKS.get(preset, ("", ()))
    if where and pointed(given, where) not in (*uplinks, _MISSING):
        return None
    picked = _Picked(given, fields)
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
    device = picked.needed(DEVICE)
    if preset == SIGFOX:
        device = str(device).zfill(SIGFOX_ZEROS)
    uplink.identifier = parse_dev_eui(str(device), fields[DEVICE][0])
    return InboundMessage(uplink, unreadable="; ".join(picked.unreadable))


def _own_fields(settings: dict[str, str]) -> Fields:
    """Return the pointers that a user has set; raise `InvalidInput` when one is missing."""
    for key in NEEDED:
        if not settings.get(key):
            raise InvalidInput("is not set", field=key, code=NOT_SET)
    return {key: (text,) for key in (*POINTERS, ENCODING) if (text := settings.get(key))}


def pointed(given: Any, pointer: str) -> Any:
    """What a pointer leads to; `_MISSING` for nothing."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(given, dict):
            given = given.get(key, _MISSING)
        elif isinstance(given, list) and _DIGITS.fullmatch(key):
            given = given[int(key)] if int(key) < len(given) else _MISSING
        else:
            return _MISSING
    return given


class _Picked:
    """The values of one body by field, and what could not be read."""

    def __init__(self, given: Any, fields: Fields) -> None:
        self._given = given
        self._fields = fields
        self.unreadable: list[str] = []

    def _found(self, key: str) -> tuple[str, Any]:
        """The first pointer that leads to a value, and the value; None for nothing."""
        pointers = self._fields.get(key, ())
        for pointer in pointers:
            found = pointed(self._given, pointer)
            if (
                found is not _MISSING
                and found is not None
                and (key == DATA or found not in _NOTHING)
            ):
                return pointer, found
        return next(iter(pointers), ""), None

    def _leave_out(self, pointer: str, reason: str) -> None:
        self.unreadable.append(f"{pointer} {reason}")

    def needed(self, key: str) -> Any:
        """A value; raise `InvalidInput` when there is none."""
        pointer, found = self._found(key)
        if found is None:
            raise InvalidInput("is missing", field=pointer)
        return found

    def text(self, key: str) -> str:
        pointer, found = self._found(key)
        if found is None or isinstance(found, bool) or not isinstance(found, str | int | float):
            if found is not None:
                self._leave_out(pointer, "must be text")
            return ""
        return cut_name(str(found))

    def number(self, key: str) -> float | None:
        """A number, or text that is one."""
        pointer, found = self._found(key)
        number: Any = parse_number(found.strip()) if isinstance(found, str) else found
        if type(number) in {int, float} and abs(number) < LARGEST:
            return float(number)
        if found is not None:
            self._leave_out(pointer, "must be a number")
        return None

    def whole(self, key: str, most: int) -> int | None:
        number = self.number(key)
        if number is None:
            return None
        if number != int(number) or not 0 <= number <= most:
            self._leave_out(self._found(key)[0], f"must be a whole number of 0 to {most}")
            return None
        return int(number)

    def port(self) -> int | None:
        """The port, None for a body without one or with one of the network's own.

        One that cannot be read is the first.
        """
        if not self._fields[PORT][0].startswith("/"):
            return int(self._fields[PORT][0])
        if self._found(PORT)[1] is None:
            return None
        port = self.number(PORT)
        if port is not None and port != int(port):
            self._leave_out(self._found(PORT)[0], "must be a whole number")
            port = None
        if port is None:
            return FIRST_PORT
        return int(port) if FIRST_PORT <= port <= LAST_PORT else None

    def data(self, *, hexadecimal: bool, optional: bool) -> bytes:
        """The bytes; base64 may lack padding, and hexadecimal may have `0x` and separators."""
        pointer, found = self._found(DATA)
        if found is None and optional:
            return b""
        found = self.needed(DATA)
        if not isinstance(found, str):
            raise InvalidInput("must be text", field=pointer)
        try:
            if hexadecimal:
                return bytes.fromhex(_SEPARATORS.sub("", found.strip().removeprefix("0x")))
            digits = "".join(found.split()).translate(_URL_SAFE).rstrip("=")
            return b64decode(digits + "=" * (-len(digits) % 4), validate=True)
        except ValueError as error:
            kind = "hexadecimal" if hexadecimal else "base64"
            raise InvalidInput(f"is not {kind}", field=pointer) from error

    def time(self) -> datetime | None:
        """ISO 8601, or a number of seconds or ms, also as text."""
        pointer, found = self._found(TIME)
        time = parse_time(found)
        if time is None and found is not None:
            self._leave_out(pointer, "is no time: ISO 8601, seconds or milliseconds")
        return time

    def frequency(self) -> int | None:
        """Hz, whether the server tells Hz, kHz or MHz."""
        number = self.number(FREQUENCY)
        if number is None or number <= 0:
            return None
        scale = next((scale for most, scale in _UNITS if number < most), 1)
        return round(number * scale)

    def data_rate(self) -> str:
        """As `SF7BW125`; `SF7` where the server tells the spreading factor alone."""
        text = self.text(DATA_RATE)
        if found := _DATA_RATE.match(text):
            return format_data_rate(int(found[1]), int(found[2]) * 1000)
        return f"SF{text}" if _FACTOR.fullmatch(text) else text

    def identity(self) -> dict[str, Any]:
        """What names an uplink: session and counter, else its time, else nothing that it shares.

        Without a session, two uplinks of one counter are the same only at the same time: a sensor
        that joins anew counts from 0 again.
        """
        counter, session = self.whole(COUNTER, LAST_COUNTER), self.text(SESSION)
        time = parse_time(self._found(TIME)[1])
        if time is not None and time.year < FIRST_YEAR:
            time = None
        if time is not None and (counter is None or not session):
            session = str(to_ms(time))
        elif counter is None:
            session = str(uuid4())
        return {"counter": counter or 0, "session": session}

    def gateways(self) -> list[Reception]:
        gateway, rssi, snr = self.text(GATEWAY), self.number(RSSI), self.number(SNR)
        heard = bool(gateway) or rssi is not None or snr is not None
        return [Reception(gateway=gateway, rssi=rssi, snr=snr)] if heard else []
