"""Where what counts stands in a body: JSON pointers (RFC 6901) that people set."""

import math
import re
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec

from libs.common.clock import from_ms, ms_of, to_ms
from libs.common.contracts.frames import Reception, ToldFrame
from libs.common.errors import InvalidInput, MalformedRequest
from services.management.builtin.networks.heard import Heard, dev_eui, frame, name

DEVICE, DATA, ENCODING, PORT = "device", "data", "encoding", "port"
TIME, COUNTER, SESSION = "time", "counter", "session"
RSSI, SNR, GATEWAY, DATA_RATE, FREQUENCY = "rssi", "snr", "gateway", "data_rate", "frequency"
NEEDED = (DEVICE, DATA, PORT)
POINTERS = (*NEEDED, TIME, COUNTER, SESSION, RSSI, SNR, GATEWAY, DATA_RATE, FREQUENCY)
HEX = "hex"
LONGEST = 256
"""Characters of a pointer."""
_DIGITS = re.compile(r"[0-9]{1,10}")
_MISSING = object()
_json = msgspec.json.Decoder().decode


def check(settings: dict[str, Any]) -> None:
    """Raise `InvalidInput` naming a setting that is no pointer; `port` may be a number."""
    for key in POINTERS:
        text = str(settings.get(key) or "").strip()
        if text and not text.startswith("/") and not (key == PORT and _DIGITS.fullmatch(text)):
            raise InvalidInput("must be a JSON pointer, as /uplink/data", field=key)


def read(tenant: str, body: bytes, settings: dict[str, str]) -> Heard | None:
    """An uplink of a body; None for one of the network's own.

    Raises `InvalidInput` naming the setting that is missing, or what does not fit it in the body.
    """
    for key in NEEDED:
        if not settings.get(key):
            raise InvalidInput("is not set", field=key)
    try:
        given = _json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"is no JSON: {error}", field="body") from error
    picked = _Picked(given, settings)
    found = frame(
        port=picked.port(),
        data=picked.data(hexadecimal=settings.get(ENCODING) == HEX),
        time=picked.time(),
        frequency=picked.whole(FREQUENCY),
        data_rate=picked.text(DATA_RATE),
        gateways=picked.gateways(),
        **picked.identity(),
    )
    if found is None:
        return None
    identifier = dev_eui(picked.text(DEVICE), settings[DEVICE])
    return Heard(ToldFrame(tenant=tenant, identifier=identifier, frame=found))


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
    """The values of one body by setting; a fault is named by the pointer."""

    def __init__(self, given: Any, settings: dict[str, str]) -> None:
        self._given = given
        self._settings = settings

    def _value(self, key: str) -> Any:
        """What there is; None for nothing. Raises `InvalidInput` for nothing that is needed."""
        pointer = self._settings.get(key)
        found = pointed(self._given, pointer) if pointer else None
        if found is not _MISSING and (found is not None or key not in NEEDED):
            return found
        if key in NEEDED:
            raise InvalidInput("is missing", field=pointer)
        return None

    def _fault(self, key: str, reason: str) -> InvalidInput:
        return InvalidInput(reason, field=self._settings[key])

    def text(self, key: str) -> str:
        found = self._value(key)
        if found is not None and not isinstance(found, str | int):
            raise self._fault(key, "must be text")
        return "" if found is None else name(str(found))

    def whole(self, key: str) -> int | None:
        """A whole number, or text that is one."""
        found = self._value(key)
        if isinstance(found, str) and _DIGITS.fullmatch(found):
            found = int(found)
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
            raise self._fault(key, "must be a whole number")
        return found

    def number(self, key: str) -> float | None:
        found = self._value(key)
        if found is None:
            return None
        try:
            number = math.nan if isinstance(found, bool) else float(found)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self._fault(key, "must be a number")
        return number

    def port(self) -> int:
        text = self._settings[PORT]
        if not text.startswith("/"):
            return int(text)
        found = self.whole(PORT)
        return 0 if found is None else found

    def data(self, *, hexadecimal: bool) -> bytes:
        found = self._value(DATA)
        if not isinstance(found, str):
            raise self._fault(DATA, "must be text")
        try:
            return bytes.fromhex(found) if hexadecimal else b64decode(found, validate=True)
        except ValueError as error:
            kind = "hexadecimal" if hexadecimal else "base64"
            raise self._fault(DATA, f"is not {kind}") from error

    def time(self) -> datetime | None:
        """ISO 8601, or a number of seconds or ms."""
        found = self._value(TIME)
        if found is None:
            return None
        try:
            if isinstance(found, str):
                made = msgspec.convert(found, datetime)
                return made if made.tzinfo else made.replace(tzinfo=UTC)
            return from_ms(ms_of(self.number(TIME) or 0.0))
        except (msgspec.ValidationError, ValueError, OverflowError) as error:
            raise self._fault(TIME, "is no time: ISO 8601, seconds or milliseconds") from error

    def identity(self) -> dict[str, Any]:
        """What names an uplink: session and counter, else its time, else nothing that it shares.

        Without a session, two uplinks of one counter are the same only at the same time: a sensor
        that joins anew counts from 0 again.
        """
        counter, session, time = self.whole(COUNTER), self.text(SESSION), self.time()
        if time is not None and (counter is None or not session):
            session = str(to_ms(time))
        elif counter is None:
            session = str(uuid4())
        return {"counter": counter or 0, "session": session}

    def gateways(self) -> list[Reception]:
        gateway, rssi, snr = self.text(GATEWAY), self.number(RSSI), self.number(SNR)
        heard = bool(gateway) or rssi is not None or snr is not None
        return [Reception(gateway=gateway, rssi=rssi, snr=snr)] if heard else []
