"""The audit log: an entry as it is told, and entries on the wire of the management API."""

from typing import Annotated, Any, ClassVar

import msgspec

from libs.common.errors import InvalidInput
from libs.common.http.console import PageRequest, Shown
from libs.common.http.ids import NamedId

MOST_ROWS = 1000
"""Most entries of one answer: the log has no end, so nobody is given it whole."""

Text = Annotated[str, msgspec.Meta(max_length=255)]
Timestamp = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
"""ms, up to the end of the year 9999."""


class Subject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What was changed: `user`, `role`, `menu`, `application`, `tenant`, `session`."""

    type: str
    id: str
    name: str = ""


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """One change as its author tells it; `before` and `after` never have secrets."""

    action: str
    """`created`, `updated`, `deleted`, `password_changed`, …"""
    subject: Subject
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class AuditSearch(PageRequest):
    """`POST /audit/search`: an entry is found when it fits everything that is given."""

    largest: ClassVar[int] = MOST_ROWS

    keyword: Text | None = None
    """Part of the actor's or the object's name, in any case."""
    action: Text | None = None
    object_type: Text | None = None
    object_id: NamedId | None = None
    actor_id: NamedId | None = None
    address: Text | None = None
    request_id: Text | None = None
    start_timestamp: Timestamp | None = None
    """ms; the entry's own time counts as inside at both ends."""
    end_timestamp: Timestamp | None = None

    def check(self) -> None:
        """Raise `InvalidInput` unless the time begins before it ends."""
        start, end = self.start_timestamp, self.end_timestamp
        if start is not None and end is not None and start > end:
            raise InvalidInput("must not be after end_timestamp", field="start_timestamp")


class ShownActor(msgspec.Struct, omit_defaults=True):
    """Who did it: a user, an application, or the operator (user `0`)."""

    kind: str
    id: str
    name: str = ""


class ShownObject(msgspec.Struct, omit_defaults=True):
    """What it was done to."""

    type: str
    id: str
    name: str = ""


class ShownEntry(Shown):
    """One entry."""

    id: str
    created_at: int
    """ms."""
    actor: ShownActor
    action: str
    object: ShownObject
    address: str = ""
    """Where the request came from; absent for the operator's commands."""
    request_id: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
