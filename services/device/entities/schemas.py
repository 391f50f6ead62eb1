"""Schemas of entities, their search and tags."""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.envelope import Answer
from libs.common.http import console
from libs.common.http.console import Ids, PageRequest, ResponseModel, name_constraint
from libs.common.http.ids import Id
from libs.common.things import AccessMod, EntityType, ValueType
from libs.common.tsl.limits import MAX_TIME_MS

TagOperation = Literal["ADD", "OVERWRITE", "REMOVE", "REPLACE"]
MAX_TAGS_PER_ENTITY = 10
"""Maximum tags of an entity."""
MAX_TAGS = 300
"""Maximum tags of a tenant."""
MAX_ENTITIES_PER_MAPPING = 1000
"""Maximum entities of one mapping."""


class FindTags(console.PageRequest, kw_only=True):
    """Body of `POST /entity/tags/search`; the keyword is part of name or description."""

    keyword: Annotated[str, msgspec.Meta(max_length=63)] | None = None
    """Part of the name or description, ignoring case."""


class SaveTag(msgspec.Struct, kw_only=True):
    """Body that creates or changes a tag."""

    name: Annotated[str, name_constraint(25)]
    color: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=32,
            pattern=r"^[#A-Za-z0-9(),.% ]+$",
            description="A CSS colour such as #rrggbb",
        ),
    ]
    description: Annotated[str, msgspec.Meta(max_length=63)] | None = None


class TagRef(msgspec.Struct):
    """Answer of `POST /entity/tags`."""

    id: str


class EntityTag(ResponseModel, kw_only=True):
    """A tag of an entity."""

    id: str
    name: str
    description: str
    color: str


class TagResponse(EntityTag, kw_only=True):
    """A tag in a list; times in ms."""

    created_at: int
    updated_at: int
    tagged_entities_count: int
    """Number of entities with the tag, visible to the caller or not."""


class TagCount(msgspec.Struct):
    """Answer of `GET /entity/tags/number`."""

    number: int
    """Number of tags of the tenant."""


class DeleteTags(msgspec.Struct):
    """Body of `POST /entity/tags/delete`."""

    ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_TAGS)]
    """Ids of tags."""


class MapTags(msgspec.Struct, kw_only=True):
    """Body of `POST /entity/tags/mapping`.

    ADD requires `added_tag_ids`. OVERWRITE also requires it, and replaces all tags of the entities.
    REMOVE requires `removed_tag_ids`. REPLACE requires both, and changes only entities that have
    one of the removed tags.
    """

    operation: TagOperation
    """Change of the tags."""
    entity_ids: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=MAX_ENTITIES_PER_MAPPING)]
    added_tag_ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_TAGS_PER_ENTITY)] | None = None
    """Ids of the tags to add."""
    removed_tag_ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_TAGS)] | None = None
    """Ids of the tags to remove."""


MAX_HISTORY_ENTITIES = 100
"""Maximum entities of one search of history."""
MAX_ENUM_OPTIONS = 1000
"""Maximum values of an enumeration."""

MAX_SEARCH_KEYS = 10_000
"""Maximum keys or names of one search."""
MAX_STATUS_ENTITIES = 5000
"""Maximum entities whose values are read in one request."""

KeyOrName = Annotated[str, msgspec.Meta(max_length=512)]
Timestamp = Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_MS)]
"""Milliseconds since 1970, up to the year 9999."""
AggregateType = Literal["LAST", "MIN", "MAX", "AVG", "SUM", "COUNT"]
Identifier = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9_@#\-/\[\]][A-Za-z0-9_@#$\-/\[\]]*$",
        description="Letters, digits and _@#$-/[]; must not start with $",
    ),
]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"\S")]


class SearchEntities(PageRequest, kw_only=True):
    """Body of `POST /entity/search`: an entity must match each filter.

    One value of a list must match. `keyword` is part, ignoring case, of the name or key of the
    entity, or of the name of its device or integration.
    """

    keyword: Annotated[str, msgspec.Meta(max_length=512)] | None = None
    """Part of a name or key, ignoring case."""
    entity_type: Annotated[list[EntityType], msgspec.Meta(max_length=10)] | None = None
    entity_value_type: Annotated[list[ValueType], msgspec.Meta(max_length=10)] | None = None
    entity_access_mod: Annotated[list[AccessMod], msgspec.Meta(max_length=10)] | None = None
    entity_ids: Ids | None = None
    exclude_children: bool | None = None
    """True for entities without a parent only."""
    customized: bool | None = None
    """True for custom entities only, false for all others."""
    show_hidden: bool | None = None
    """Whether hidden entities match, too."""
    entity_keys: Annotated[list[KeyOrName], msgspec.Meta(max_length=MAX_SEARCH_KEYS)] | None = None
    """Complete keys."""
    entity_names: Annotated[list[KeyOrName], msgspec.Meta(max_length=MAX_SEARCH_KEYS)] | None = None
    """Complete names."""
    entity_source_name: Annotated[str, msgspec.Meta(max_length=512)] | None = None
    """Part of the name of the device or integration, ignoring case."""
    not_scan_key: bool | None = None
    """Whether the keyword matches names only."""


class DeviceGroup(msgspec.Struct):
    """The group of an entity's device."""

    id: str
    name: str


class WorkflowRef(msgspec.Struct):
    """The flow of an entity."""

    id: str
    name: str


class EntityResponse(ResponseModel, kw_only=True):
    """An entity in a list; times in ms."""

    entity_id: str
    entity_key: str
    entity_name: str
    entity_type: EntityType
    entity_value_type: ValueType
    entity_value_attribute: dict[str, Any]
    entity_access_mod: AccessMod | None = None
    entity_parent_name: str | None = None
    """Name of the entity that contains this one."""
    entity_description: str | None = None
    """Description of the entity."""
    entity_is_customized: bool
    entity_created_at: int
    entity_updated_at: int
    device_id: str | None = None
    device_name: str | None = None
    device_group: DeviceGroup | None = None
    integration_name: str | None = None
    entity_tags: list[EntityTag] | None = None
    entity_value_store_mod: Literal["ALL", "HISTORY"]
    """`ALL` for a property, which has a latest value; others have history only."""
    workflow_data: WorkflowRef | None = None
    """The flow whose service or input the entity is."""
    entity_latest_value: str | None = None
    """Latest value of a property as text, or key of an enumeration.

    Only an advanced search returns it. A page of at most 200 rows also has the outputs of the last
    event.
    """


class EntityMeta(ResponseModel, kw_only=True):
    """Metadata of an entity; times in ms."""

    id: str
    key: str
    """Key of the entity. It gets `@event` or `@service` if a property has the same id."""
    name: str
    type: EntityType
    """`PROPERTY` (a value), `SERVICE` (can be called) or `EVENT` (is reported)."""
    access_mod: AccessMod | None = None
    value_type: ValueType
    value_attribute: dict[str, Any]
    description: str | None = None
    customized: bool
    device_id: str | None = None
    """The device; absent for entities of integrations and custom entities."""
    device_name: str | None = None
    created_at: int
    updated_at: int


class EntityStatus(ResponseModel, kw_only=True):
    """Latest value of an entity; empty without a value.

    `timestamp` is the time of the value: ms, as text. `updated_at` is its older name.
    """

    value: Any = None
    """The latest value."""
    timestamp: str | None = None
    updated_at: str | None = None
    value_type: ValueType | None = None


class GetEntityStatuses(msgspec.Struct):
    """Body of `POST /entity/batch-get-status`; ids may repeat."""

    entity_ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_STATUS_ENTITIES)]


class LatestValue(ResponseModel, kw_only=True):
    """Latest value of an entity; empty without a value. `timestamp`: ms, as text."""

    value: Any = None
    """The latest value."""
    timestamp: str | None = None
    value_type: ValueType | None = None


class SearchHistory(PageRequest, kw_only=True):
    """Body of `POST /entity/history/search`; bounds are inclusive."""

    entity_id: Id | None = None
    entity_ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_HISTORY_ENTITIES)] | None = None
    start_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None


class HistoryItem(msgspec.Struct, kw_only=True):
    """A value in the history of an entity; `timestamp` in ms."""

    id: str
    """Unique in the response."""
    entity_id: str
    timestamp: int
    value: Any
    """Value at that time."""
    value_type: ValueType


class AggregateHistory(msgspec.Struct, kw_only=True):
    """Body of `POST /entity/history/aggregate`; bounds are inclusive."""

    entity_id: Id
    aggregate_type: AggregateType
    """Result for the period: the last value, minimum, maximum, average, sum, or counts by value."""
    start_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None


class ValueCount(msgspec.Struct, kw_only=True):
    """How often an entity had a value."""

    value: Any
    """The value."""
    value_type: ValueType
    count: int
    """Number of times that the value was stored."""


class Aggregate(ResponseModel, kw_only=True):
    """An aggregate; empty without values. Only COUNT has `count_result`."""

    value: Any = None
    """Result of the aggregation."""
    value_type: ValueType | None = None
    count_result: list[ValueCount] | None = None
    """Count of each value."""


class UpdateEntities(msgspec.Struct):
    """Body of `POST /entity/property/update`: values by entity key."""

    exchange: dict[str, Any]
    """New values, for example `{"direct.device.SN1.siren": true}`."""


class CallEntityServices(msgspec.Struct):
    """Body of `POST /entity/service/call`: inputs of services by entity key."""

    exchange: dict[str, Any]
    """Inputs by entity key, for example `{"direct.device.SN1.reboot": {"delay": 5}}`."""
    entity_id: Id | None = None
    """Ignored; some consoles send it."""


class QueuedCall(msgspec.Struct, kw_only=True):
    """A call that waits until its device connects or, as a LoRaWAN sensor, sends an uplink."""

    device: str
    """SN of the device."""
    command_id: str
    """Id of the command, which `POST /device/{device_id}/commands/search` lists."""
    expires_at: int
    """Time in ms."""


class CalledServices(Answer[dict[str, Any]], kw_only=True):
    """Outputs of service calls; `detail` has the queued calls."""

    detail: list[QueuedCall] | msgspec.UnsetType = msgspec.UNSET
    """Calls that wait for an offline device or a LoRaWAN sensor."""


class CreateEntity(msgspec.Struct, kw_only=True):
    """Body of `POST /entity`; a child names the identifier of its parent, an OBJECT."""

    identifier: Identifier
    """Identifier of the entity, the end of its key."""
    name: Name
    type: EntityType
    """`PROPERTY`, `SERVICE` or `EVENT`."""
    value_type: ValueType
    access_mod: AccessMod | None = None
    """Required for a PROPERTY."""
    value_attribute: dict[str, Any] | None = None
    visible: bool | None = None
    """False hides the entity."""
    parent_identifier: Identifier | None = None
    """Identifier of the parent."""
    description: Annotated[str, msgspec.Meta(max_length=1024)] | None = None


class UpdateEntity(msgspec.Struct):
    """Body of `PUT /entity/{entity_id}`.

    The attributes of a custom PROPERTY are replaced as a whole. Attributes of other entities follow
    their TSL.
    """

    name: Name
    value_attribute: dict[str, Any] | None = None


class DeleteEntities(msgspec.Struct):
    """Body of `POST /entity/delete`."""

    entity_ids: Ids


MAX_FILTER_VALUES = 100
FilterValue = Annotated[str, msgspec.Meta(max_length=512)]


class ColumnFilter(msgspec.Struct):
    """Filter of a column."""

    operator: Annotated[str, msgspec.Meta(max_length=32)]
    """Comparison, for example `CONTAINS`."""
    values: Annotated[list[FilterValue], msgspec.Meta(max_length=MAX_FILTER_VALUES)] = []
    """Values to compare with."""


class AdvancedSearch(PageRequest, kw_only=True):
    """Body of `POST /entity/advanced-search`: an entity must match all column filters.

    `ENTITY_KEY`, `ENTITY_NAME`, `ENTITY_PARENT_NAME`, `DEVICE_NAME` and `INTEGRATION_NAME` accept
    `CONTAINS`, `NOT_CONTAINS`, `START_WITH`, `END_WITH` (ignoring case), `EQ` and `NE` with one
    value; the parent's name also `IS_EMPTY` and `IS_NOT_EMPTY`. `ENTITY_TYPE`,
    `ENTITY_VALUE_TYPE` and `DEVICE_GROUP` (names) accept `ANY_EQUALS`; `ENTITY_TAGS` (names)
    `ANY_EQUALS`, `CONTAINS` (all), `NOT_CONTAINS` (none), `EQ` (no others), `IS_EMPTY` and
    `IS_NOT_EMPTY`; `DEVICE_ID` accepts `EQ`.
    """

    entity_filter: Annotated[dict[str, ColumnFilter], msgspec.Meta(max_length=20)] | None = None
    """Filters by column, for example `{"ENTITY_NAME": {"operator": "CONTAINS", "values":
    ["temp"]}}`."""
