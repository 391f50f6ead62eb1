"""Frames of `/websocket`: JSON text in snake_case."""

from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec

from libs.common.changes import EntityChange
from libs.common.decoding import INVALID_JSON, parse_validation_error
from libs.common.errors import InvalidInput
from libs.common.http.ids import find_id, parse_id

MAX_CHANGES = 1000
"""Maximum changes that wait for a slow reader; the oldest are skipped."""
MAX_CHANGE_BYTES = 256 * 1024
"""Maximum bytes of the changes that wait for a slow reader, unless a single change is larger."""
Scope = Literal["TENANT", "GROUP", "DEVICE"]
MAX_KEYS = 10_000
"""Maximum number of keys of a subscription."""
LONGEST_KEY = 512
EXCHANGE = "Exchange"
HEARTBEAT = "Heartbeat"
SUBSCRIBE = "Subscribe"


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of `Subscribe`: selects changes among those that the user sees."""

    scope: Scope
    id: Any = None
    """Id of the group or the device."""
    type: Literal["PROPERTY", "EVENT"] | None = None
    keyword: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """Part of the entity key or of the device's name, ignoring case."""

    def check(self) -> None:
        """Raise `InvalidInput` unless a group or a device has an id."""
        if self.scope != "TENANT":
            parse_id(self.id, "payload.id")
        elif self.id is not None:
            raise InvalidInput("must be absent for TENANT", field="payload.id")

    def covers(self, change: EntityChange) -> bool:
        """Return whether the thing and the type of a change match."""
        thing = change.thing
        if self.type is not None and (self.type == "EVENT") != change.is_event:
            return False
        if self.scope == "TENANT":
            return True
        wanted_id = find_id(self.id)
        return thing.device and wanted_id == (thing.group if self.scope == "GROUP" else thing.id)

    def select(self, change: EntityChange) -> Mapping[str, Any]:
        """Return the matching values of a change, by entity key."""
        if not self.covers(change):
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


class _Changes(msgspec.Struct):
    skipped: int
    changes: list[msgspec.Raw]


class _ChangesFrame(msgspec.Struct):
    payload: _Changes
    event_type: str = "Changes"


_encoder = msgspec.json.Encoder()


class EncodedChange(NamedTuple):
    """A change, encoded for sockets that see the same values."""

    text: bytes
    values: int
    """The number of its values."""

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
    """Bytes of a queue, which also count in `total`."""

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
        """Add `size` bytes."""
        self.size += size
        if self.total is not None:
            self.total.add(size)


class ChangeQueue:
    """Changes that wait for a socket."""

    def __init__(self, total: QueuedBytes) -> None:
        self._waiting: deque[EncodedChange] = deque()
        self._skipped = 0
        self._queued = QueuedBytes(MAX_CHANGE_BYTES, total)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, change: EncodedChange) -> int:
        """Append a change; return the number of oldest values that were skipped."""
        before = self._skipped
        self._waiting.append(change)
        self._queued.add(len(change.text))
        while len(self._waiting) > (1 if self._queued.is_full else MAX_CHANGES):
            oldest = self._waiting.popleft()
            self._queued.add(-len(oldest.text))
            self._skipped += oldest.values
        return self._skipped - before

    def pop_frame(self) -> str | None:
        """Remove all changes and return their frame; None without changes."""
        if not self._waiting:
            return None
        changes = [msgspec.Raw(change.text) for change in self._waiting]
        frame = _ChangesFrame(_Changes(self._skipped, changes))
        self.clear()
        return _encoder.encode(frame).decode()

    def clear(self) -> None:
        """Remove all changes."""
        self._waiting.clear()
        self._queued.add(-self._queued.size)
        self._skipped = 0


class BadFrame(Exception):
    """A frame that cannot be decoded; the message is the reason."""


class Value(msgspec.Struct):
    """A new value; `timestamp` is the time of measurement, ms."""

    value: Any
    timestamp: int


class Follow(msgspec.Struct, frozen=True):
    """A client's request to follow a pattern; None ends the subscription."""

    pattern: Pattern | None
    text: str
    """The frame, which is returned as confirmation."""


class _Frame(msgspec.Struct):
    event_type: str
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _Subscription(msgspec.Struct):
    entity_key: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=LONGEST_KEY)]],
        msgspec.Meta(max_length=MAX_KEYS),
    ]


class _Pushed(msgspec.Struct):
    entity_key: list[str]
    values: Mapping[str, Value | msgspec.Raw]


class _Push(msgspec.Struct):
    payload: _Pushed
    event_type: str = EXCHANGE


_frame_decoder = msgspec.json.Decoder(_Frame)
_subscription_decoder = msgspec.json.Decoder(_Subscription)
_pattern_decoder = msgspec.json.Decoder(Pattern | None)


def read_frame(text: str) -> frozenset[str] | Follow | str | None:
    """Decode a frame: keys or a pattern to subscribe to, a text to return, or None.

    A subscription replaces the previous one of its type. Types of frames ignore case; unknown types
    are ignored. Raises `BadFrame`.
    """
    try:
        frame = _frame_decoder.decode(text)
        kind = frame.event_type.lower()
        if kind == HEARTBEAT.lower():
            return text
        if kind == SUBSCRIBE.lower():
            return Follow(_decode_pattern(frame.payload), text)
        if kind != EXCHANGE.lower():
            return None
        return frozenset(_subscription_decoder.decode(frame.payload).entity_key)
    except msgspec.ValidationError as error:
        raise BadFrame(parse_validation_error(str(error)).text) from error
    except INVALID_JSON as error:
        raise BadFrame("not JSON") from error


def _decode_pattern(payload: msgspec.Raw) -> Pattern | None:
    pattern: Pattern | None = _pattern_decoder.decode(payload)
    if pattern is not None:
        try:
            pattern.check()
        except InvalidInput as error:
            raise BadFrame(error.text) from error
    return pattern


class Update(NamedTuple):
    """New values, encoded once for all sockets that get the same values."""

    values: Mapping[str, Value]
    frame: bytes

    @classmethod
    def encode(cls, values: Mapping[str, Value]) -> Self:
        """Encode new values by the key that the client uses."""
        return cls(values, push_frame(values))


def push_frame(values: Mapping[str, Value | msgspec.Raw]) -> bytes:
    """Return the frame with new values: the documented keys, and `values`."""
    return _encoder.encode(_Push(_Pushed(list(values), values)))
