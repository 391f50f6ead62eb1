"""Schemas of alarms and alarm rules."""

from typing import Annotated, Any, ClassVar

import msgspec

from libs.common.contracts.flows import Severity
from libs.common.http import console
from libs.common.http.console import Ids, PageRequest, name_constraint
from libs.common.http.ids import Id
from libs.common.tsl.limits import MAX_TIME_MS
from services.device.alarms.model import RuleCondition

MAX_ALARMS_PER_REQUEST = 1000
"""Maximum alarms of a page or a claim."""

Timestamp = Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_MS)]
"""Milliseconds since 1970, up to the year 9999."""
Keyword = Annotated[str, msgspec.Meta(max_length=512)]
Name = Annotated[str, name_constraint(255)]
Note = Annotated[str, msgspec.Meta(max_length=2000)]
ProductModel = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[^\x00]+$")]
AlarmIds = Annotated[list[Id], msgspec.Meta(max_length=MAX_ALARMS_PER_REQUEST)]


class SearchAlarms(PageRequest, kw_only=True):
    """Filters of alarms: an alarm must match each filter, and one value of a list."""

    largest: ClassVar[int] = MAX_ALARMS_PER_REQUEST

    keyword: Keyword | None = None
    """Part of the content or the device's name, ignoring case."""
    device_ids: Ids | None = None
    """Absent or empty means any device."""
    start_timestamp: Timestamp | None = None
    """Earliest time at which the alarm was raised."""
    end_timestamp: Timestamp | None = None
    alarm_status: Annotated[list[bool], msgspec.Meta(max_length=2)] | None = None
    """True for unclaimed, false for claimed alarms."""
    open: bool | None = None
    """True for alarms that are not cleared."""
    severity: Annotated[list[Severity], msgspec.Meta(max_length=5)] | None = None
    rule_id: Id | None = None


class AlarmResponse(console.ResponseModel, kw_only=True):
    """An alarm in a list; times in ms."""

    id: str
    alarm_status: bool
    """True while the alarm is unclaimed."""
    alarm_time: int
    """When the alarm was raised."""
    alarm_content: str
    """Message that users see."""
    device_id: str
    device_name: str
    latitude: float | None = None
    longitude: float | None = None
    address: str | None = None
    severity: Severity
    rule_id: str | None = None
    """The rule that raised the alarm."""
    flow_id: str | None = None
    """The flow that raised the alarm."""
    open: bool
    """False after the alarm was cleared."""
    value: Any = None
    """Value that raised the alarm."""
    cleared_time: int | None = None
    """Time at which the alarm was cleared in milliseconds since 1970-01-01 UTC."""
    cleared_by: str | None = None
    """`RULE`, `FLOW`, or the id of a user."""
    claimed_time: int | None = None
    """Time at which a user claimed the alarm in milliseconds since 1970-01-01 UTC."""
    claimed_by: str | None = None
    """Id of the user."""
    claimed_name: str | None = None
    """Name of that user."""
    note: str | None = None
    """Note of the user who claimed or cleared it."""


class AlarmCounts(msgspec.Struct, kw_only=True):
    """Numbers of alarms in a search."""

    total: int
    """Number of matching alarms."""
    open: int
    """Number of alarms that are not cleared."""
    unclaimed: int
    """Number of alarms that no user has claimed."""
    open_by_severity: dict[Severity, int]
    """Number of alarms that are not cleared, by severity."""


class ClaimAlarms(msgspec.Struct, kw_only=True):
    """Body of `POST /alarms/claim`: `device_id` for all unclaimed alarms of a device, or ids."""

    device_id: Id | None = None
    alarm_ids: AlarmIds | None = None
    note: Note | None = None
    """Note for other users."""


class ClearAlarms(msgspec.Struct, kw_only=True):
    """Body of `POST /alarms/clear`."""

    alarm_ids: AlarmIds
    note: Note | None = None
    """Note for other users."""


class PutRule(msgspec.Struct, kw_only=True):
    """Body that creates or replaces an alarm rule of a device or a product."""

    name: Name
    severity: Severity
    condition: RuleCondition
    device_id: Id | None = None
    product: ProductModel | None = None
    enabled: bool = True
    """Whether the rule raises alarms."""


class SearchRules(PageRequest, kw_only=True):
    """Body of `POST /alarm-rules/search`; `keyword` is part of the name, ignoring case."""

    largest: ClassVar[int] = MAX_ALARMS_PER_REQUEST

    keyword: Keyword | None = None
    device_id: Id | None = None
    product: ProductModel | None = None
    enabled: bool | None = None
    """True for rules that raise alarms, false for disabled rules."""


class RuleRef(msgspec.Struct):
    """Answer of `POST /alarm-rules`."""

    id: str


class AlarmRuleResponse(console.ResponseModel, kw_only=True):
    """An alarm rule; times in ms."""

    id: str
    name: str
    severity: Severity
    condition: RuleCondition
    device_id: str | None = None
    product: str | None = None
    enabled: bool
    """Whether the rule raises alarms."""
    created_at: int
    updated_at: int
