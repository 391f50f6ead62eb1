"""Entities, their search and tags on the wire."""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.envelope import Answer
from libs.common.http import console
from libs.common.http.console import Ids, PageRequest, Shown
from libs.common.http.ids import Id
from libs.common.things import AccessMod, EntityType, ValueType
from libs.common.tsl.limits import MAX_TS

Operation = Literal["ADD", "OVERWRITE", "REMOVE", "REPLACE"]
MOST_OF_ENTITY = 10
"""Tags of an entity."""
MOST_TAGS = 300
"""Tags of a tenant."""
MOST_TAGGED = 1000
"""Entities of one mapping."""


class FindTags(console.PageRequest, kw_only=True):
    """Body of `POST /entity/tags/search`: a part of the name or the description, in any case."""

    keyword: Annotated[str, msgspec.Meta(max_length=63)] | None = None


class WrittenTag(msgspec.Struct, kw_only=True):
    """Body of `POST /entity/tags` and `PUT /entity/tags/{tag_id}`."""

    name: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=25,
            pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
            description="1 to 25 characters, not all blank, none a control character",
        ),
    ]
    color: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=32,
            pattern=r"^[#A-Za-z0-9(),.% ]+$",
            description="As CSS writes a colour: #rrggbb",
        ),
    ]
    description: Annotated[str, msgspec.Meta(max_length=63)] | None = None


class TagRef(msgspec.Struct):
    """Answer of `POST /entity/tags`."""

    id: str


class EntityTag(Shown, kw_only=True):
    """A tag as an entity carries it."""

    id: str
    name: str
    description: str
    color: str


class ShownTag(EntityTag, kw_only=True):
    """A tag in a list; times in ms."""

    created_at: int
    updated_at: int
    tagged_entities_count: int
    """Of all that carry it, whether the caller sees them or not."""


class TagNumber(msgspec.Struct):
    """Answer of `GET /entity/tags/number`."""

    number: int


class DeleteTags(msgspec.Struct):
    """Body of `POST /entity/tags/delete`."""

    ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_TAGS)]


class MapTags(msgspec.Struct, kw_only=True):
    """Body of `POST /entity/tags/mapping`.

    ADD needs `added_tag_ids`, and so does OVERWRITE, after which entities have exactly these;
    REMOVE needs `removed_tag_ids`. REPLACE needs both, and is for entities that have one of
    those that are removed.
    """

    operation: Operation
    entity_ids: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=MOST_TAGGED)]
    added_tag_ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_OF_ENTITY)] | None = None
    removed_tag_ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_TAGS)] | None = None


MOST_ENTITIES = 100
"""Entities of one search of history."""
MOST_OPTIONS = 1000
"""Values of an enumeration."""

MOST_KEYS = 10_000
"""Keys or names of one search."""
MOST_STATUS = 5000
"""Entities whose values are read at once."""

Key = Annotated[str, msgspec.Meta(max_length=512)]
Timestamp = Annotated[int, msgspec.Meta(ge=0, le=MAX_TS)]
"""Milliseconds since 1970, up to the year 9999."""
AggregateType = Literal["LAST", "MIN", "MAX", "AVG", "SUM", "COUNT"]
Identifier = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9_@#\-/\[\]][A-Za-z0-9_@#$\-/\[\]]*$",
        description="Letters, digits and _@#$-/[], not beginning with $",
    ),
]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"\S")]


class SearchEntities(PageRequest, kw_only=True):
    """Body of `POST /entity/search`; every filter narrows, of a list any value will do.

    `keyword` is a part, in any case, of the name or key of the entity, of the name of its
    device or of that of its integration.
    """

    keyword: Annotated[str, msgspec.Meta(max_length=512)] | None = None
    entity_type: Annotated[list[EntityType], msgspec.Meta(max_length=10)] | None = None
    entity_value_type: Annotated[list[ValueType], msgspec.Meta(max_length=10)] | None = None
    entity_access_mod: Annotated[list[AccessMod], msgspec.Meta(max_length=10)] | None = None
    entity_ids: Ids | None = None
    exclude_children: bool | None = None
    customized: bool | None = None
    """True: only those that people made; false: all others."""
    show_hidden: bool | None = None
    entity_keys: Annotated[list[Key], msgspec.Meta(max_length=MOST_KEYS)] | None = None
    entity_names: Annotated[list[Key], msgspec.Meta(max_length=MOST_KEYS)] | None = None
    """Whole names, as they are."""
    entity_source_name: Annotated[str, msgspec.Meta(max_length=512)] | None = None
    """A part, in any case, of the name of the device or of the integration."""
    not_scan_key: bool | None = None
    """Let the keyword look at names alone."""


class DeviceGroup(msgspec.Struct):
    """The group that the device of an entity is in."""

    id: str
    name: str


class WorkflowRef(msgspec.Struct):
    """The flow behind an entity."""

    id: str
    name: str


class ShownEntity(Shown, kw_only=True):
    """An entity in a list; times in ms."""

    entity_id: str
    entity_key: str
    entity_name: str
    entity_type: EntityType
    entity_value_type: ValueType
    entity_value_attribute: dict[str, Any]
    entity_access_mod: AccessMod | None = None
    entity_parent_name: str | None = None
    entity_description: str | None = None
    entity_is_customized: bool
    entity_created_at: int
    entity_updated_at: int
    device_id: str | None = None
    device_name: str | None = None
    device_group: DeviceGroup | None = None
    integration_name: str | None = None
    entity_tags: list[EntityTag] | None = None
    entity_value_store_mod: Literal["ALL", "HISTORY"]
    """What is kept of it: also the latest value of a property."""
    workflow_data: WorkflowRef | None = None
    """The flow whose service it is."""
    entity_latest_value: str | None = None
    """In an advanced search: the latest value of a property as text, of an enumeration the key.

    In a page of at most 200 rows also the outputs of the last occurrence of an event.
    """


class EntityMeta(Shown, kw_only=True):
    """Answer of `GET /entity/{entity_id}/meta`; times in ms."""

    id: str
    key: str
    name: str
    type: EntityType
    access_mod: AccessMod | None = None
    value_type: ValueType
    value_attribute: dict[str, Any]
    description: str | None = None
    customized: bool
    device_id: str | None = None
    """The device that it is an entity of; absent of an integration's and of a custom one."""
    device_name: str | None = None
    created_at: int
    updated_at: int


class EntityStatus(Shown, kw_only=True):
    """Answer of `GET /entity/{entity_id}/status`; empty when there is no value.

    `timestamp` is the time of the value: ms, as text; `updated_at` is its older name.
    """

    value: Any = None
    timestamp: str | None = None
    updated_at: str | None = None
    value_type: ValueType | None = None


class AskStatus(msgspec.Struct):
    """Body of `POST /entity/batch-get-status`; an id may come twice."""

    entity_ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_STATUS)]


class LatestValue(Shown, kw_only=True):
    """The latest value of an entity; empty when there is none. `timestamp`: ms, as text."""

    value: Any = None
    timestamp: str | None = None
    value_type: ValueType | None = None


class SearchHistory(PageRequest, kw_only=True):
    """Body of `POST /entity/history/search`; both bounds are inclusive, the end is now."""

    entity_id: Id | None = None
    entity_ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_ENTITIES)] | None = None
    start_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None


class HistoryItem(msgspec.Struct, kw_only=True):
    """A value that an entity had; `timestamp` in ms."""

    id: str
    """Unlike that of any other value."""
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


class UpdateEntities(msgspec.Struct):
    """Body of `POST /entity/property/update`: values by entity key."""

    exchange: dict[str, Any]


class CallEntities(msgspec.Struct):
    """Body of `POST /entity/service/call`: inputs, or the service itself, by entity key."""

    exchange: dict[str, Any]
    entity_id: Id | None = None
    """What consoles send along; the keys say all that is needed."""


class QueuedCall(msgspec.Struct, kw_only=True):
    """A call for a device that is offline: it gets it when it connects before then."""

    device: str
    """Its SN."""
    command_id: str
    expires_at: int
    """ms."""


class CalledServices(Answer[dict[str, Any]], kw_only=True):
    """An `Answer` with the outputs; `detail` has the calls that nobody has answered yet."""

    detail: list[QueuedCall] | msgspec.UnsetType = msgspec.UNSET


class CreateEntity(msgspec.Struct, kw_only=True):
    """Body of `POST /entity`; a child has the identifier of its parent, an OBJECT."""

    identifier: Identifier
    name: Name
    type: EntityType
    value_type: ValueType
    access_mod: AccessMod | None = None
    """Of a PROPERTY; it must have one."""
    value_attribute: dict[str, Any] | None = None
    visible: bool | None = None
    """Unless it is false, the entity is shown."""
    parent_identifier: Identifier | None = None
    description: Annotated[str, msgspec.Meta(max_length=1024)] | None = None


class UpdateEntity(msgspec.Struct):
    """Body of `PUT /entity/{entity_id}`.

    The attributes of a custom PROPERTY are set as a whole; all others have those of their TSL.
    """

    name: Name
    value_attribute: dict[str, Any] | None = None


class DeleteEntities(msgspec.Struct):
    """Body of `POST /entity/delete`."""

    entity_ids: Ids


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
