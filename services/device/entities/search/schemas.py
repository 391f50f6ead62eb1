"""The advanced search of entities on the wire."""

from typing import Annotated

import msgspec

from libs.common.http.console import PageRequest

MOST_VALUES = 100
Value = Annotated[str, msgspec.Meta(max_length=512)]


class ColumnFilter(msgspec.Struct):
    """What is wanted of a column."""

    operator: Annotated[str, msgspec.Meta(max_length=32)]
    values: Annotated[list[Value], msgspec.Meta(max_length=MOST_VALUES)] = []


class AdvancedSearch(PageRequest, kw_only=True):
    """Body of `POST /entity/advanced-search`: a filter for each column, all of which hold.

    `ENTITY_KEY`, `ENTITY_NAME`, `ENTITY_PARENT_NAME`, `DEVICE_NAME` and `INTEGRATION_NAME` take
    `CONTAINS`, `NOT_CONTAINS`, `START_WITH`, `END_WITH` (in any case), `EQ` and `NE` with one
    value, the parent's name also `IS_EMPTY` and `IS_NOT_EMPTY`. `ENTITY_TYPE`,
    `ENTITY_VALUE_TYPE` and `DEVICE_GROUP` (names) take `ANY_EQUALS`; `ENTITY_TAGS` (names)
    `ANY_EQUALS`, `CONTAINS` (all), `NOT_CONTAINS` (none), `EQ` (no others), `IS_EMPTY` and
    `IS_NOT_EMPTY`; `DEVICE_ID` takes `EQ`.
    """

    entity_filter: Annotated[dict[str, ColumnFilter], msgspec.Meta(max_length=20)] | None = None
