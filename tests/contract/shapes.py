"""What the management API answers, field by field, as its documents have it.

Written from the specifications, not from the services: a field that is missing,
unknown or of another type fails. Fields with `UNSET` may be left out; null is nowhere.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

T = TypeVar("T")

IdText = Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]{0,15}$")]
"""A decimal string."""
Ms = Annotated[int, msgspec.Meta(gt=1_600_000_000_000)]
"""A number, where consoles need one."""
MsText = Annotated[str, msgspec.Meta(pattern="^1[0-9]{12}$")]
Kind = Literal["PROPERTY", "SERVICE", "EVENT"]
ValueType = Literal["STRING", "LONG", "DOUBLE", "BOOLEAN", "BINARY", "OBJECT"]
Access = Literal["R", "W", "RW"]
Text = str | UnsetType


class Exact(msgspec.Struct, forbid_unknown_fields=True):
    """Base: nothing besides what is named."""


class Page(Exact, Generic[T], kw_only=True):
    """A page."""

    page_size: int
    page_number: int
    total: int
    content: list[T]


class Integration(Exact, kw_only=True):
    """An integration in a list, its counts in both spellings."""

    id: str
    icon: str
    name: str
    description: str
    add_device_service_key: Text = UNSET
    delete_device_service_key: Text = UNSET
    carries_frames: bool
    device_count: int
    entity_count: int
    deviceCount: int  # noqa: N815 - the sample's spelling
    entityCount: int  # noqa: N815


class DeviceMember(Exact, kw_only=True):
    """An entity in a list of devices; `value_attribute` is there or consoles break."""

    id: IdText
    key: str
    name: str
    type: Kind
    value_type: ValueType
    value_attribute: dict[str, Any]
    access_mod: Access | UnsetType = UNSET
    description: Text = UNSET
    parent: Text = UNSET


class IntegrationEntity(DeviceMember, kw_only=True):
    """An entity of an integration."""

    value: Any = UNSET


class IntegrationDetail(Integration, kw_only=True):
    """One integration."""

    integration_entities: list[IntegrationEntity]


class Device(Exact, kw_only=True):
    """A device in a list."""

    id: IdText
    key: str
    name: str
    integration: str
    integration_name: Text = UNSET
    identifier: str
    additional_data: dict[str, Any]
    model: str
    tags: list[str]
    status: Literal["ONLINE", "OFFLINE"] | UnsetType = UNSET
    status_updated_at: Ms | UnsetType = UNSET
    last_reported_at: Ms | UnsetType = UNSET
    location: dict[str, Any] | UnsetType = UNSET
    group_id: IdText | UnsetType = UNSET
    group_name: Text = UNSET
    application_id: IdText | UnsetType = UNSET
    application_name: Text = UNSET
    important_entities: list[DeviceMember] | UnsetType = UNSET
    common_entities: list[DeviceMember] | UnsetType = UNSET
    created_at: Ms
    updated_at: Ms
    deletable: bool
    sends_frames: bool


class DeviceEntity(Exact, kw_only=True):
    """An entity in the detail of a device."""

    id: IdText
    key: str
    name: str
    type: Kind
    value_type: ValueType
    value_attribute: dict[str, Any]
    description: Text = UNSET


class DeviceDetail(Device, kw_only=True):
    """One device."""

    joined: Ms | UnsetType = UNSET
    link: dict[str, Any] | UnsetType = UNSET
    user_nickname: str | UnsetType = UNSET
    entities: list[DeviceEntity]


class Credentials(Exact, kw_only=True):
    """What a device logs in with."""

    sn: str
    key: Annotated[str, msgspec.Meta(min_length=16)]


class Entity(Exact, kw_only=True):
    """An entity in a list."""

    entity_id: IdText
    entity_name: str
    entity_type: Kind
    entity_value_type: ValueType
    entity_value_attribute: dict[str, Any]
    entity_access_mod: Access | UnsetType = UNSET
    entity_key: str
    device_id: IdText | UnsetType = UNSET
    device_name: Text = UNSET
    device_group: dict[str, str] | UnsetType = UNSET
    integration_name: Text = UNSET
    entity_tags: list[dict[str, str]] | UnsetType = UNSET
    entity_parent_name: Text = UNSET
    entity_is_customized: bool
    entity_created_at: Ms
    entity_updated_at: Ms
    entity_description: Text = UNSET
    entity_value_store_mod: Literal["ALL", "HISTORY"]
    workflow_data: dict[str, str] | UnsetType = UNSET
    entity_latest_value: Text = UNSET


class EntityMeta(Exact, kw_only=True):
    """What is known of an entity besides its value."""

    id: IdText
    key: str
    name: str
    type: Kind
    access_mod: Access | UnsetType = UNSET
    value_type: ValueType
    value_attribute: dict[str, Any]
    description: Text = UNSET
    customized: bool
    device_id: IdText | UnsetType = UNSET
    device_name: Text = UNSET
    created_at: Ms
    updated_at: Ms


class EntityStatus(Exact, kw_only=True):
    """The latest value, where there is one."""

    value: Any
    timestamp: MsText
    updated_at: MsText
    value_type: ValueType


class HistoryItem(Exact, kw_only=True):
    """A value that was; the time is an integer."""

    id: str
    entity_id: IdText
    timestamp: Ms
    value: Any
    value_type: ValueType


class Folded(Exact, kw_only=True):
    """The answer of every aggregate but COUNT."""

    value: Any
    value_type: ValueType


class Count(Exact, kw_only=True):
    """How often a value was."""

    value: Any
    value_type: ValueType
    count: int


class Counted(Exact, kw_only=True):
    """The answer of COUNT."""

    count_result: list[Count]


class Widget(Exact, kw_only=True):
    """A widget; its id is a string, or consoles lose its place."""

    widget_id: IdText
    data: dict[str, Any]


class DashboardRef(Exact, kw_only=True):
    """The answer of a creation."""

    dashboard_id: IdText
    main_canvas_id: IdText


class Dashboard(Exact, kw_only=True):
    """A dashboard in the list."""

    dashboard_id: IdText
    user_id: IdText
    name: str
    widgets: list[Widget]
    created_at: MsText


class ValueFault(Exact, kw_only=True):
    """One value at fault, as `data` of `multiple_error` lists them."""

    error_code: str
    error_message: str
    args: dict[str, Any]


def shaped(data: Any, shape: type[T]) -> T:
    """`data` in a shape, exactly."""
    return msgspec.convert(data, shape, strict=True)
