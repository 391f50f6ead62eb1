"""Redecoding on the wire; every field is one word, so that both APIs spell it alike."""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.http.ids import Id
from services.device.telemetry.history import Moment

State = Literal["RUNNING", "DONE", "STOPPED", "FAILED"]
MOST_DEVICES = 1000
MOST_TOLD = 10_000
"""Reports that one says again before it ends: the stream of events is everybody's."""
SHOWN = 20
"""Differences that are shown."""


class StartRedecode(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST …/codec/redecode`: which frames are read again; all of them by default."""

    dry: bool = False
    """Only count and show what would change."""
    devices: Annotated[list[Id], msgspec.Meta(max_length=MOST_DEVICES)] = []
    """Ids of devices; none is all of the product."""
    start: Moment | None = None
    """Of frames received from then on, ms."""
    end: Moment | None = None
    tell: bool = False
    """Whether reports that are read otherwise are said again: flows that they start run then."""


class Difference(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A frame that is read otherwise than before; None is nothing."""

    device: int
    ts: int
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    reason: str | None = None
    """Why it, or a part of it, is refused now."""


class Redecode(msgspec.Struct, omit_defaults=True, kw_only=True):
    """How far the last redecoding of a product is. Times are ms."""

    state: State
    dry: bool = False
    tell: bool = False
    version: str
    """Of the codec that reads."""
    total: int = 0
    """Devices."""
    done: int = 0
    """Devices that are through."""
    read: int = 0
    """Frames."""
    changed: int = 0
    """Frames that are read otherwise than before."""
    told: int = 0
    """Reports that were said again."""
    differences: list[Difference] = []
    """The first of them."""
    started: int
    ended: int | None = None
    fault: str | None = None
    """Why it failed."""
