"""Values of entities on the wire (specification, "Entity"; notes, section 3.8)."""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.http.console import Id, PageRequest, Shown
from libs.common.things import ValueType
from libs.common.tsl.limits import MAX_TS

MOST_ENTITIES = 100
"""Entities of one search of history."""

Timestamp = Annotated[int, msgspec.Meta(ge=0, le=MAX_TS)]
"""Milliseconds since 1970, up to the year 9999."""
AggregateType = Literal["LAST", "MIN", "MAX", "AVG", "SUM", "COUNT"]


class SearchHistory(PageRequest, kw_only=True):
    """Body of `POST /entity/history/search`; both bounds are inclusive, the end is now."""

    entity_id: Id | None = None
    entity_ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_ENTITIES)] | None = None
    start_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None


class HistoryItem(msgspec.Struct, kw_only=True):
    """A value that an entity had; `timestamp` in ms."""

    entity_id: str
    timestamp: int
    value: Any
    value_type: ValueType


class AggregateHistory(msgspec.Struct, kw_only=True):
    """Body of `POST /entity/history/aggregate`; both bounds are inclusive, the end is now."""

    entity_id: Id
    aggregate_type: AggregateType
    start_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None


class ValueCount(msgspec.Struct, kw_only=True):
    """How often an entity had a value."""

    value: Any
    value_type: ValueType
    count: int


class Aggregate(Shown, kw_only=True):
    """Answer of an aggregate: nothing when there is no value; `count_result` of COUNT alone."""

    value: Any = None
    value_type: ValueType | None = None
    count_result: list[ValueCount] | None = None


class UpdateProperties(msgspec.Struct):
    """Body of `POST /entity/property/update`: values by entity key."""

    exchange: dict[str, Any]


class CallService(msgspec.Struct):
    """Body of `POST /entity/service/call`: inputs, or the service itself, by entity key."""

    exchange: dict[str, Any]
    entity_id: Id | None = None
    """What consoles send along; the keys say all that is needed."""
