"""Gaps on the wire; every field is one word, so that both APIs spell it alike."""

from typing import Annotated, Literal

import msgspec

from services.device.telemetry.history import Moment

MOST = 200
"""Gaps of a page."""

GapState = Literal["OPEN", "ASKED", "HEALED", "GIVEN_UP"]


class GapRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Counters of a device that are missing between two of its uplinks. Times are ms."""

    start: int
    """When the last uplink before it was received."""
    end: int
    """When the first one after it was received."""
    counter: int
    """The first that is missing."""
    missing: int
    """How many are. Uplinks for the network alone have counters too, and are not told."""
    state: GapState
    """OPEN until the device is asked for it; HEALED when history has as many readings."""
    asks: int = 0
    """How often it was asked."""
    asked: int | None = None
    """When it was asked last."""
    found: int | None = None
    """Readings that history had in it when it was looked at last."""
    reason: str | None = None
    """Why it is not healed."""


class GapPage(msgspec.Struct, rename="camel", omit_defaults=True):
    """A page; `nextPageKey` is absent on the last one."""

    list: list[GapRecord]
    page_size: int
    next_page_key: str | None = None


class FindGaps(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /device/{id}/gaps/search`."""

    start_timestamp: Moment | None = None
    end_timestamp: Moment | None = None
    page_size: Annotated[int, msgspec.Meta(ge=1, le=MOST)] = 20
    next_key: Annotated[str, msgspec.Meta(max_length=64)] | None = None


class FoundGaps(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A page of gaps; with a `next_key` there may be older ones."""

    content: list[GapRecord]
    next_key: str | None = None
