"""What a socket that follows a pattern is sent: every change that fits, or how many it missed."""

from collections import deque
from typing import Annotated, Any, Literal

import msgspec

from libs.common.changes import Changed
from libs.common.errors import InvalidInput
from libs.common.http.ids import find_id, parse_id

MOST_CHANGES = 1000
"""Events that wait for a slow reader; the oldest are skipped."""
MOST_BYTES = 256 * 1024
"""Bytes of them, unless one event alone has more."""

Scope = Literal["TENANT", "GROUP", "DEVICE"]


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of `Subscribe`: the changes to follow, of those that the user sees."""

    scope: Scope
    id: Any = None
    """Of the group or the device."""
    type: Literal["PROPERTY", "EVENT"] | None = None
    keyword: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """Part of the entity key or of the device's name, in any case."""

    def check(self) -> None:
        """Raise `InvalidInput` unless a group or a device has its id."""
        if self.scope != "TENANT":
            parse_id(self.id, "payload.id")
        elif self.id is not None:
            raise InvalidInput("is not for TENANT", field="payload.id")

    def covers(self, change: Changed) -> bool:
        """Return whether the thing and the kind of a change fit."""
        thing = change.thing
        if self.type is not None and (self.type == "EVENT") != change.is_event:
            return False
        if self.scope == "TENANT":
            return True
        wanted = find_id(self.id)
        return thing.device and wanted == (thing.group if self.scope == "GROUP" else thing.id)

    def has_keyword(self, change: Changed, key: str) -> bool:
        """Return whether the keyword is part of an entity key or of the device's name."""
        word = self.keyword.casefold()
        return not word or word in key.casefold() or word in change.thing.name.casefold()


class _Change(msgspec.Struct, omit_defaults=True):
    type: str
    thing_key: str
    timestamp: int
    values: dict[str, Any]
    device_id: str = ""
    device_name: str = ""


class _Changes(msgspec.Struct):
    skipped: int
    changes: list[msgspec.Raw]


class _Frame(msgspec.Struct):
    payload: _Changes
    event_type: str = "Changes"


_encoder = msgspec.json.Encoder()


class ChangeQueue:
    """Changes that wait for one socket."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._bytes = 0
        self._skipped = 0

    def add(self, change: Changed, values: dict[str, Any]) -> None:
        """Append `values` of a change by entity key, and skip the oldest beyond the bounds."""
        thing = change.thing
        encoded = _encoder.encode(
            _Change(
                type="EVENT" if change.is_event else "PROPERTY",
                thing_key=thing.key,
                timestamp=change.ts,
                values=values,
                device_id=str(thing.id) if thing.device else "",
                device_name=thing.name,
            )
        )
        self._waiting.append((encoded, len(values)))
        self._bytes += len(encoded)
        while len(self._waiting) > 1 and (
            len(self._waiting) > MOST_CHANGES or self._bytes > MOST_BYTES
        ):
            oldest, count = self._waiting.popleft()
            self._bytes -= len(oldest)
            self._skipped += count

    def take(self) -> str | None:
        """Return the frame of everything that waits, None when nothing does."""
        if not self._waiting:
            return None
        changes = [msgspec.Raw(encoded) for encoded, _ in self._waiting]
        frame = _Frame(_Changes(self._skipped, changes))
        self.clear()
        return _encoder.encode(frame).decode()

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting.clear()
        self._bytes = self._skipped = 0
