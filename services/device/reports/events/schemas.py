"""Events of devices on the wire."""

from typing import Annotated, Any

import msgspec

from services.device.reports.history.service import Moment

MOST = 200
"""Events of a page."""


class FindEvents(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /device/{device_id}/events/search`; times in ms, both inclusive."""

    start_timestamp: Moment | None = None
    end_timestamp: Moment | None = None
    """By default now."""
    event_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None
    """Of the TSL: only these events."""
    page_size: Annotated[int, msgspec.Meta(ge=1, le=MOST)] = 20
    next_key: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    """Where the next page begins, as an answer has given it."""


class EventRecord(msgspec.Struct, kw_only=True):
    """An event that the device reported."""

    id: str
    """Of this occurrence."""
    ts: int
    """When it happened, ms."""
    event_id: str
    """Of the TSL."""
    outputs: dict[str, Any]
    """By short member name."""


class FoundEvents(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A page of events, the newest first; with a `next_key` there are older ones."""

    content: list[EventRecord]
    next_key: str | None = None
