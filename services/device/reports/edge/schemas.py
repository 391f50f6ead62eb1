"""What devices say over HTTP, for the document: each message is read by itself, see `checking`."""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.http.ids import Id
from libs.common.tsl.limits import MAX_TS

Time = Annotated[
    int, msgspec.Meta(ge=0, le=MAX_TS, description="When it was, ms since 1970; now without it")
]


class ReportMessage(msgspec.Struct):
    """Values of properties, by their id."""

    properties: dict[str, Any]
    ts: Time | None = None


class EventMessage(msgspec.Struct, rename="camel"):
    """An event of the TSL, with its outputs by their short name."""

    event_id: str
    ts: Time | None = None
    outputs: dict[str, Any] | None = None


class ReplyMessage(msgspec.Struct, rename="camel"):
    """What became of a command; `error` says why it failed."""

    command_id: Id
    status: Literal["SUCCESS", "FAILED"]
    outputs: dict[str, Any] | None = None
    error: str | None = None
