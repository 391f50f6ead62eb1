"""Frames on the wire; every field is one word, so that both APIs spell it alike."""

from typing import Annotated, Any

import msgspec

from libs.common.contracts.frames import Reception
from services.device.telemetry.history import Moment

MOST = 200
"""Frames of a page."""


class FrameRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An uplink as its network server heard it, and what became of it."""

    ts: int
    """When the network received it, ms."""
    port: int
    hex: str
    """The bytes."""
    session: str = ""
    counter: int
    confirmed: bool = False
    rate: str = ""
    """As `SF7BW125`."""
    frequency: int | None = None
    """Hz."""
    gateways: list[Reception] = []
    """Those that heard it: dBm and dB."""
    values: dict[str, Any] | None = None
    """What the codec made of it, as it is stored."""
    reason: str | None = None
    """Why it, or a part of it, was refused."""
    codec: str = ""
    """The version of the codec that read it; empty when there was none."""


class FramePage(msgspec.Struct, rename="camel", omit_defaults=True):
    """A page; `nextPageKey` is absent on the last one."""

    list: list[FrameRecord]
    page_size: int
    next_page_key: str | None = None


class FindFrames(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /device/{id}/frames/search`."""

    start_timestamp: Moment | None = None
    end_timestamp: Moment | None = None
    page_size: Annotated[int, msgspec.Meta(ge=1, le=MOST)] = 20
    next_key: Annotated[str, msgspec.Meta(max_length=64)] | None = None


class FoundFrames(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A page of frames; with a `next_key` there are older ones."""

    content: list[FrameRecord]
    next_key: str | None = None
