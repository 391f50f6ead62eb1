"""Refusals on the wire."""

from typing import Annotated

import msgspec

from libs.common.contracts.events import Fault
from libs.common.http.console import Shown

LARGEST_PAGE = 100
Key = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}-[0-9]{1,19}$")]
"""Where the next page begins, as an answer has given it."""


class FindRefusals(msgspec.Struct, kw_only=True):
    """Body of `POST /device/{device_id}/refusals/search`."""

    page_size: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_PAGE)] = 20
    next_key: Key | None = None
    reason: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    """A part of the reason, in any case, or of the path of a value that was refused."""


class Refusal(Shown, kw_only=True):
    """One message of which something was refused."""

    id: str
    received_at: int
    """ms."""
    channel: str
    """`report`, `event` or `reply`."""
    whole: bool
    """Whether nothing of it was stored; else only the values of `faults` were left out."""
    reason: str
    faults: list[Fault]
    payload: str | None = None
    """What was said, at most 64 KiB of it; of what was stored in part it is not kept."""
    base64: bool = False
    truncated: bool = False


class RefusalPage(Shown, kw_only=True):
    """Refusals, the newest first."""

    content: list[Refusal]
    next_key: str | None = None
    """Given when there may be older ones; `content` may be empty all the same where a reason was
    asked for."""
