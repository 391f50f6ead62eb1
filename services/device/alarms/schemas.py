"""Alarms and their rules on the wire."""

from typing import Annotated, Any, ClassVar

import msgspec

from libs.common.contracts.flows import Severity
from libs.common.http import console
from libs.common.http.console import Ids, PageRequest
from libs.common.http.ids import Id
from libs.common.tsl.limits import MAX_TS
from services.device.alarms.model import Condition

MOST_AT_ONCE = 1000
"""Alarms of a page, and of a claim."""

Timestamp = Annotated[int, msgspec.Meta(ge=0, le=MAX_TS)]
"""Milliseconds since 1970, up to the year 9999."""
Keyword = Annotated[str, msgspec.Meta(max_length=512)]
Name = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=255,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
        description="1 to 255 characters, not all blank, none a control character",
    ),
]
Note = Annotated[str, msgspec.Meta(max_length=2000)]
Model = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[^\x00]+$")]
AlarmIds = Annotated[list[Id], msgspec.Meta(max_length=MOST_AT_ONCE)]


class SearchAlarms(PageRequest, kw_only=True):
    """What alarms are searched by; every filter narrows, of a list any value will do."""

    largest: ClassVar[int] = MOST_AT_ONCE

    keyword: Keyword | None = None
    """A part of content or name of the device, in any case."""
    device_ids: Ids | None = None
    """None, or an empty list: of any device."""
    start_timestamp: Timestamp | None = None
    """Raised then or later."""
    end_timestamp: Timestamp | None = None
    alarm_status: Annotated[list[bool], msgspec.Meta(max_length=2)] | None = None
    """True: not claimed; false: claimed."""
    open: bool | None = None
    """True: not cleared yet."""
    severity: Annotated[list[Severity], msgspec.Meta(max_length=5)] | None = None
    rule_id: Id | None = None


class ShownAlarm(console.Shown, kw_only=True):
    """An alarm in a list; times in ms."""

    id: str
    alarm_status: bool
    """Whether nobody has claimed it."""
    alarm_time: int
    """When it was raised."""
    alarm_content: str
    device_id: str
    device_name: str
    latitude: float | None = None
    longitude: float | None = None
    address: str | None = None
    severity: Severity
    rule_id: str | None = None
    """The rule that has raised it."""
    flow_id: str | None = None
    """The flow that has raised it."""
    open: bool
    """Whether it is not over."""
    value: Any = None
    """What raised it."""
    cleared_time: int | None = None
    cleared_by: str | None = None
    """`RULE`, `FLOW`, or the id of a user."""
    claimed_time: int | None = None
    claimed_by: str | None = None
    """Id of the user."""
    claimed_name: str | None = None
    note: str | None = None


class AlarmNumbers(msgspec.Struct, kw_only=True):
    """Answer of `POST /alarms/count`."""

    total: int
    open: int
    unclaimed: int
    open_by_severity: dict[Severity, int]


class ClaimAlarms(msgspec.Struct, kw_only=True):
    """Body of `POST /alarms/claim`: all of a device that nobody has claimed, or some."""

    device_id: Id | None = None
    alarm_ids: AlarmIds | None = None
    note: Note | None = None


class ClearAlarms(msgspec.Struct, kw_only=True):
    """Body of `POST /alarms/clear`."""

    alarm_ids: AlarmIds
    note: Note | None = None


class PutRule(msgspec.Struct, kw_only=True):
    """Body of `POST /alarm-rules` and `PUT /alarm-rules/{rule_id}`: of a device or a product."""

    name: Name
    severity: Severity
    condition: Condition
    device_id: Id | None = None
    product: Model | None = None
    enabled: bool = True


class SearchRules(PageRequest, kw_only=True):
    """Body of `POST /alarm-rules/search`; `keyword` is a part of the name, in any case."""

    largest: ClassVar[int] = MOST_AT_ONCE

    keyword: Keyword | None = None
    device_id: Id | None = None
    product: Model | None = None
    enabled: bool | None = None


class RuleRef(msgspec.Struct):
    """Answer of `POST /alarm-rules`."""

    id: str


class ShownRule(console.Shown, kw_only=True):
    """A rule; times in ms."""

    id: str
    name: str
    severity: Severity
    condition: Condition
    device_id: str | None = None
    product: str | None = None
    enabled: bool
    created_at: int
    updated_at: int
