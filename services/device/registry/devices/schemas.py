"""Devices on the wire: of the open API, then of the management API."""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.contracts.events import ConnectStatus
from libs.common.http import console
from libs.common.http.ids import Id, OptionalId
from libs.common.things import AccessMod, EntityType, ValueType
from services.device.things.model import (
    ApplicationRef,
    DeviceType,
    Location,
    NetworkStatus,
    ProvisioningStatus,
)
from services.device.things.schemas import (
    DeviceIds,
    DeviceResult,
    Name,
    Search,
    SingleLineText,
    Tags,
    Text,
)

SearchText = Annotated[str, msgspec.Meta(max_length=255)]
Latitude = Annotated[float, msgspec.Meta(ge=-90, le=90)]
Longitude = Annotated[float, msgspec.Meta(ge=-180, le=180)]
Degrees = Annotated[str, msgspec.Meta(max_length=32)]
GroupNameOrBlank = Annotated[
    str,
    msgspec.Meta(
        max_length=127,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="At most 127 characters, none a control character; blank: no group",
    ),
]
Status = Literal["ONLINE", "OFFLINE", "NEVER_SEEN"]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class AddDevice(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /devices`.

    `profile`, an object or JSON text, is the older name of `config`.
    """

    sn_dev_eui: str = msgspec.field(name="snDevEUI")
    """Serial number (SN), or EUI of a LoRaWAN device."""
    sn: str | None = None
    """Rejected with a hint, because some clients send it in place of `snDevEUI`."""
    dev_eui: str | None = msgspec.field(default=None, name="devEUI")
    """Rejected with a hint, because some clients send it in place of `snDevEUI`."""
    name: Name
    description: Text | None = None
    project: SingleLineText | None = None
    tag: Tags | None = None
    model: SingleLineText | None = None
    auto_provision: bool | None = None
    """Whether to provision the device with `config` by RPS."""
    config: dict[str, Any] | None = None
    profile: dict[str, Any] | str | None = None
    """Older name of `config`."""
    data_storage: bool | None = None


class UpdateDevice(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Body of `PUT /devices`; absent and null fields stay unchanged."""

    device_id: Id
    name: Name
    tsl_version: SingleLineText | None = None
    description: Text | None = None
    project: SingleLineText | None = None
    tag: Tags | None = None
    data_storage: bool | None = None


class SearchDevices(Search, rename="camel", kw_only=True):
    """Body of `POST /devices/search`; all filters must match, blank ones are ignored.

    `sn`, `devEUI` and `imei` must equal the whole value. `keyword`, `name`, `model` and versions
    match values that contain them. These filters ignore case; `project` and `tag` must be equal. A
    filter with a list matches if one of its values matches. Bounds of `electricity` (%) are
    inclusive. `autopStatus` is the older name of `rpsStatus`.
    """

    keyword: SingleLineText | None = None
    """Part of the name, SN or DevEUI, ignoring case."""
    sn: SingleLineText | None = None
    dev_eui: SingleLineText | None = msgspec.field(default=None, name="devEUI")
    imei: SingleLineText | None = None
    name: SingleLineText | None = None
    model: SingleLineText | None = None
    hardware_version: SingleLineText | None = None
    firmware_version: SingleLineText | None = None
    connect_status: list[ConnectStatus] | None = None
    device_type: list[DeviceType] | None = None
    rps_status: list[ProvisioningStatus] | None = None
    autop_status: list[ProvisioningStatus] | None = None
    electricity_min: Percent | None = None
    """Minimum charge of the battery in percent."""
    electricity_max: Percent | None = None
    """Maximum charge of the battery in percent."""
    project: SingleLineText | None = None
    tag: SingleLineText | Tags | None = None
    application_id: Id | None = None


class DeviceRef(msgspec.Struct, rename="camel", omit_defaults=True):
    """The reference of an added or updated device."""

    sn: str
    device_id: int
    dev_eui: str | None = msgspec.field(default=None, name="devEUI")
    imei: str | None = None


class DeviceRecord(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The record of a device."""

    sn: str
    device_id: int
    dev_eui: str | None = msgspec.field(default=None, name="devEUI")
    imei: str | None = None
    name: str
    description: str
    project: str
    tag: list[str]
    model: str
    tsl_version: str
    device_type: DeviceType
    connect_status: ConnectStatus
    license_status: str
    rps_status: ProvisioningStatus
    autop_status: ProvisioningStatus
    hardware_version: str | None = None
    firmware_version: str | None = None
    electricity: int | None = None
    last_update_time: int | None = None
    application: ApplicationRef | None = None
    mac: str | None = None
    wlan_mac: str | None = None
    data_storage: bool


class DevicePage(msgspec.Struct, rename="camel"):
    """One page of a search."""

    page_size: int
    page_number: int
    total: int
    content: list[DeviceRecord]


class Area(msgspec.Struct, kw_only=True):
    """A part of the Earth, in degrees; `west` above `east` crosses the 180th meridian."""

    south: Latitude
    """Lowest latitude in degrees."""
    north: Latitude
    """Highest latitude in degrees."""
    west: Longitude
    """Western longitude in degrees."""
    east: Longitude
    """Eastern longitude in degrees."""


class FindDevices(console.PageRequest, kw_only=True):
    """Body of `POST /device/search`; all filters must match. A list matches with any value.

    `name` is a part of the name in any case, or the whole identifier; `identifier` is a part of the
    identifier. `filter_not_grouped` selects the devices without a group. Devices without a location
    are in no `area`.
    """

    name: SearchText | None = None
    integration: SearchText | None = None
    identifier: SearchText | None = None
    group_id: OptionalId = None
    application_id: OptionalId = None
    filter_not_grouped: bool | None = None
    """True for devices without a group."""
    id_list: DeviceIds | None = None
    """Ids of devices."""
    status: Annotated[list[Status], msgspec.Meta(max_length=3)] | None = None
    model: Annotated[list[SingleLineText], msgspec.Meta(max_length=100)] | None = None
    tags: Tags | None = None
    area: Area | None = None
    """Area that the device's location must be in."""


class LocationInput(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A location as consoles send it: degrees are numbers or numeric text."""

    latitude: float | Degrees | None = None
    longitude: float | Degrees | None = None
    address: Annotated[str, msgspec.Meta(max_length=255)] | None = None


class CreateDevice(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Body of `POST /device`, with the inputs of the integration by entity key.

    A missing group is created; an empty `location` means none.
    """

    name: Name
    integration: SearchText
    param_entities: dict[str, Any]
    """Inputs of the integration's service that adds devices, by entity key."""
    group_name: GroupNameOrBlank | None = None
    location: LocationInput | None = None


class MoveDevices(msgspec.Struct, kw_only=True):
    """Body of `POST /device/move-to-group`; without `group_id` devices leave their group."""

    device_id_list: DeviceIds
    group_id: OptionalId = None


class TagDevices(msgspec.Struct, kw_only=True):
    """Body of `POST /device-batch/tag`; OVERWRITE replaces all tags."""

    operation: Literal["ADD", "OVERWRITE", "REMOVE"]
    """Change of the tags."""
    device_id_list: DeviceIds
    tags: Tags


class DeviceResults(msgspec.Struct):
    """Answer of `POST /device-batch/…`: one result for each device, in request order."""

    results: list[DeviceResult]
    """Results of the devices."""


class RenameDevice(msgspec.Struct):
    """Body of `PUT /device/{device_id}`."""

    name: Name


class DeviceListEntity(console.ResponseModel, kw_only=True):
    """An entity in a list of devices."""

    id: str
    key: str
    """Key of the entity. It gets `@event` or `@service` if a property has the same id."""
    name: str
    type: EntityType
    """`PROPERTY` (a value), `SERVICE` (can be called) or `EVENT` (is reported)."""
    value_type: ValueType
    value_attribute: dict[str, Any]
    access_mod: AccessMod | None = None
    description: str | None = None
    parent: str | None = None
    """Key of the OBJECT that contains it."""


class DeviceResponse(console.ResponseModel, kw_only=True):
    """A device in a list; times in ms."""

    id: str
    key: str
    """Key of the device, `{integration}.device.{identifier}`. It never changes."""
    name: str
    integration: str
    integration_name: str | None = None
    """Absent when the integration is unknown."""
    identifier: str
    additional_data: dict[str, Any]
    """Data of the integration about the device."""
    model: str
    tags: list[str]
    status: Literal["ONLINE", "OFFLINE"] | None = None
    """Absent until it is ONLINE for the first time."""
    status_updated_at: int | None = None
    """Time of the last change of the status."""
    last_reported_at: int | None = None
    """Time of its newest report; up to 10 s behind."""
    location: Location | None = None
    group_id: str | None = None
    group_name: str | None = None
    application_id: str | None = None
    """The application that owns it, if any."""
    application_name: str | None = None
    important_entities: list[DeviceListEntity] | None = None
    """Entities that widgets show by default; in pages of up to 100 devices."""
    common_entities: list[DeviceListEntity] | None = None
    """Status, location and alarm of the device; in pages of up to 100 devices."""
    created_at: int
    updated_at: int
    deletable: bool
    """Whether the integration of the device can delete it."""
    sends_frames: bool
    """Whether it sends frames, which the codec of its product decodes."""


class DeviceEntity(console.ResponseModel, kw_only=True):
    """An entity in the detail of its device."""

    id: str
    key: str
    """Key of the entity. It gets `@event` or `@service` if a property has the same id."""
    name: str
    type: EntityType
    """`PROPERTY` (a value), `SERVICE` (can be called) or `EVENT` (is reported)."""
    value_attribute: dict[str, Any]
    value_type: ValueType
    description: str | None = None


class DeviceDetail(DeviceResponse, kw_only=True):
    """A device with its entities: each parent, followed by its children."""

    joined: int | None = None
    """Time of the last join to its network, ms."""
    link: NetworkStatus | None = None
    """Latest status of the device in its LoRaWAN network."""
    user_nickname: str | None = None
    """The user who added it; absent for devices of applications and for deleted users."""
    entities: list[DeviceEntity]
