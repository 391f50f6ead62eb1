"""The frames of `/websocket`: JSON text, snake_case."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Self

import msgspec

from libs.common.decoding import INVALID_JSON, worded
from libs.common.errors import InvalidInput
from services.management.live.following import Pattern

MOST_KEYS = 10_000
"""Most keys of one subscription."""
LONGEST_KEY = 512

EXCHANGE = "Exchange"
HEARTBEAT = "Heartbeat"
SUBSCRIBE = "Subscribe"


class BadFrame(Exception):
    """A frame that cannot be read; the text says what is wrong with it."""


class Value(msgspec.Struct):
    """A new value; `timestamp` in ms is when it was measured."""

    value: Any
    timestamp: int


class Follow(msgspec.Struct, frozen=True):
    """What a client wants to follow; None ends it."""

    pattern: Pattern | None
    text: str
    """The frame, which is sent back when the subscription holds."""


class _Frame(msgspec.Struct):
    event_type: str
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _Subscription(msgspec.Struct):
    entity_key: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=LONGEST_KEY)]],
        msgspec.Meta(max_length=MOST_KEYS),
    ]


class _Pushed(msgspec.Struct):
    entity_key: list[str]
    values: Mapping[str, Value | msgspec.Raw]


class _Push(msgspec.Struct):
    payload: _Pushed
    event_type: str = EXCHANGE


_frames = msgspec.json.Decoder(_Frame)
_subscriptions = msgspec.json.Decoder(_Subscription)
_patterns = msgspec.json.Decoder(Pattern | None)
_encoder = msgspec.json.Encoder()


def read_frame(text: str) -> frozenset[str] | Follow | str | None:
    """Read what a client says: keys or a pattern to subscribe to, a text to send back, or nothing.

    A subscription replaces the one before of its kind. Kinds of frames are compared without
    regard to case, unknown ones are passed over. Raises `BadFrame`.
    """
    try:
        frame = _frames.decode(text)
        kind = frame.event_type.lower()
        if kind == HEARTBEAT.lower():
            return text
        if kind == SUBSCRIBE.lower():
            return Follow(_pattern(frame.payload), text)
        if kind != EXCHANGE.lower():
            return None
        return frozenset(_subscriptions.decode(frame.payload).entity_key)
    except msgspec.ValidationError as error:
        raise BadFrame(worded(str(error)).text) from error
    except INVALID_JSON as error:
        raise BadFrame("not JSON") from error


def _pattern(payload: msgspec.Raw) -> Pattern | None:
    pattern: Pattern | None = _patterns.decode(payload)
    if pattern is not None:
        try:
            pattern.check()
        except InvalidInput as error:
            raise BadFrame(error.text) from error
    return pattern


class Update(NamedTuple):
    """New values, encoded once for all sockets that are sent the same."""

    values: Mapping[str, Value]
    frame: bytes

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Self:
        """Encode new values by the key that a client has named."""
        return cls(values, push_frame(values))


def push_frame(values: Mapping[str, Value | msgspec.Raw]) -> bytes:
    """The frame that tells of new values: the keys as documented, and beside them `values`."""
    return _encoder.encode(_Push(_Pushed(list(values), values)))
