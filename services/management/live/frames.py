"""Frames of `/websocket`: JSON text in snake_case."""

from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec

from libs.common.changes import EntityChange
from libs.common.decoding import JSON_ERRORS, parse_validation_error
from libs.common.errors import InvalidInput
from libs.common.http.ids import parse_id, try_read_id

MAX_WAITING_CHANGES = 1000
"""Maximum changes that wait for a slow reader; the oldest are skipped."""
MAX_WAITING_CHANGE_BYTES = 256 * 1024
"""Maximum bytes of the changes that wait for a slow reader, unless a single change is larger."""
FilterScope = Literal["TENANT", "GROUP", "DEVICE"]
MAX_SUBSCRIBED_KEYS = 10_000
"""Maximum number of keys of a subscription."""
MAX_KEY_CHARACTERS = 512
EXCHANGE_EVENT = "Exchange"
HEARTBEAT_EVENT = "Heartbeat"
SUBSCRIBE_EVENT = "Subscribe"


class ChangeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of `Subscribe`: selects changes among those that the user sees."""

    scope: FilterScope
    id: Any = None
    """Id of the group or the device."""
    type: Literal["PROPERTY", "EVENT"] | None = None
    keyword: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """Part of the entity key or of the device's name, ignoring case."""

    def check_id(self) -> None:
        """Raise `InvalidInput` if `id` is invalid for GROUP or DEVICE, or present for TENANT."""
        if self.scope != "TENANT":
            parse_id(self.id, "payload.id")
        elif self.id is not None:
            raise InvalidInput("must be absent for TENANT", field="payload.id")

    def matches_thing_and_type(self, change: EntityChange) -> bool:
        """Return whether the thing and the type of a change match."""
        thing = change.thing
        if self.type is not None and (self.type == "EVENT") != change.is_event:
            return False
        if self.scope == "TENANT":
            return True
        wanted_id = try_read_id(self.id)
        return thing.device and wanted_id == (thing.group if self.scope == "GROUP" else thing.id)

    def select_values(self, change: EntityChange) -> Mapping[str, Any]:
        """Return the matching values of a change, by entity key."""
        if not self.matches_thing_and_type(change):
            return {}
        word = self.keyword.casefold()
        if not word or word in change.thing.name.casefold():
            return change.values
        return {key: value for key, value in change.values.items() if word in key.casefold()}


class _Change(msgspec.Struct, omit_defaults=True):
    type: str
    thing_key: str
    timestamp: int
    values: Mapping[str, Any]
    device_id: str = ""
    device_name: str = ""


class _ChangesPayload(msgspec.Struct):
    skipped: int
    changes: list[msgspec.Raw]


class _ChangesFrame(msgspec.Struct):
    payload: _ChangesPayload
    event_type: str = "Changes"


_encoder = msgspec.json.Encoder()


class EncodedChange(NamedTuple):
    """A change as JSON, encoded once for all sockets that see the same values."""

    text: bytes
    value_count: int
    """The number of values in the change."""

    @classmethod
    def encode(cls, change: EntityChange, values: Mapping[str, Any]) -> Self:
        """Encode `values` of a change, by entity key."""
        thing = change.thing
        encoded = _Change(
            type="EVENT" if change.is_event else "PROPERTY",
            thing_key=thing.key,
            timestamp=change.ts,
            values=values,
            device_id=str(thing.id) if thing.device else "",
            device_name=thing.name,
        )
        return cls(_encoder.encode(encoded), len(values))


class QueuedBytes:
    """The number of bytes in a queue; `total` is the sum of several queues."""

    __slots__ = ("maximum", "size", "total")

    def __init__(self, maximum: int, total: "QueuedBytes | None" = None) -> None:
        self.maximum = maximum
        self.total = total
        self.size = 0

    @property
    def is_full(self) -> bool:
        """Return whether this count or the total exceeds its limit."""
        return self.size > self.maximum or (self.total is not None and self.total.is_full)

    def add(self, size: int) -> None:
        """Add `size` bytes, which may be negative."""
        self.size += size
        if self.total is not None:
            self.total.add(size)


class ChangeQueue:
    """Changes that wait for a socket."""

    def __init__(self, total: QueuedBytes) -> None:
        self._waiting: deque[EncodedChange] = deque()
        self._skipped = 0
        self._queued = QueuedBytes(MAX_WAITING_CHANGE_BYTES, total)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add_and_count_skipped(self, change: EncodedChange) -> int:
        """Append a change; return the number of oldest values that this skips."""
        before = self._skipped
        self._waiting.append(change)
        self._queued.add(len(change.text))
        while len(self._waiting) > (1 if self._queued.is_full else MAX_WAITING_CHANGES):
            oldest = self._waiting.popleft()
            self._queued.add(-len(oldest.text))
            self._skipped += oldest.value_count
        return self._skipped - before

    def pop_frame(self) -> str | None:
        """Remove all changes and return their frame; None without changes."""
        if not self._waiting:
            return None
        changes = [msgspec.Raw(change.text) for change in self._waiting]
        frame = _ChangesFrame(_ChangesPayload(self._skipped, changes))
        self.clear()
        return _encoder.encode(frame).decode()

    def clear(self) -> None:
        """Remove all changes."""
        self._waiting.clear()
        self._queued.add(-self._queued.size)
        self._skipped = 0


class InvalidFrame(Exception):
    """A received frame cannot be decoded; the message is the reason."""


class TimedValue(msgspec.Struct):
    """A new value; `timestamp` is the time of measurement, ms."""

    value: Any
    timestamp: int


def keep_latest(latest: dict[str, TimedValue], key: str, value: TimedValue) -> None:
    """Store the value of a key, unless its stored value was measured later."""
    known = latest.get(key)
    if known is None or value.timestamp >= known.timestamp:
        latest[key] = value


class FilterRequest(msgspec.Struct, frozen=True):
    """A client's request to filter changes; None ends the subscription."""

    filter: ChangeFilter | None
    confirmation: str
    """The frame, which is returned as confirmation."""


class _ReceivedFrame(msgspec.Struct):
    event_type: str
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _KeysPayload(msgspec.Struct):
    entity_key: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=MAX_KEY_CHARACTERS)]],
        msgspec.Meta(max_length=MAX_SUBSCRIBED_KEYS),
    ]


class _ValuesPayload(msgspec.Struct):
    entity_key: list[str]
    values: Mapping[str, TimedValue | msgspec.Raw]


class _ValuesFrame(msgspec.Struct):
    payload: _ValuesPayload
    event_type: str = EXCHANGE_EVENT


_frame_decoder = msgspec.json.Decoder(_ReceivedFrame)
_keys_decoder = msgspec.json.Decoder(_KeysPayload)
_filter_decoder = msgspec.json.Decoder(ChangeFilter | None)


def decode_frame(text: str) -> frozenset[str] | FilterRequest | str | None:
    """Decode a frame: keys or a filter to subscribe to, a text to send back, or None.

    A subscription replaces the previous one of its type. Types of frames ignore case; unknown types
    are ignored. Raises `InvalidFrame`.
    """
    try:
        frame = _frame_decoder.decode(text)
        kind = frame.event_type.lower()
        if kind == HEARTBEAT_EVENT.lower():
            return text
        if kind == SUBSCRIBE_EVENT.lower():
            return FilterRequest(_decode_filter(frame.payload), text)
        if kind != EXCHANGE_EVENT.lower():
            return None
        return frozenset(_keys_decoder.decode(frame.payload).entity_key)
    except msgspec.ValidationError as error:
        raise InvalidFrame(parse_validation_error(str(error)).text) from error
    except JSON_ERRORS as error:
        raise InvalidFrame("not JSON") from error


def _decode_filter(payload: msgspec.Raw) -> ChangeFilter | None:
    change_filter: ChangeFilter | None = _filter_decoder.decode(payload)
    if change_filter is not None:
        try:
            change_filter.check_id()
        except InvalidInput as error:
            raise InvalidFrame(error.text) from error
    return change_filter


class ValuesUpdate(NamedTuple):
    """New values, encoded once for all sockets that get the same values."""

    values: Mapping[str, TimedValue]
    frame: bytes

    @classmethod
    def encode(cls, values: Mapping[str, TimedValue]) -> Self:
        """Encode new values, by the keys or ids that the client subscribed to."""
        return cls(values, encode_values_frame(values))


def encode_values_frame(values: Mapping[str, TimedValue | msgspec.Raw]) -> bytes:
    """Return the frame with new values by key, and the list of their keys."""
    return _encoder.encode(_ValuesFrame(_ValuesPayload(list(values), values)))
