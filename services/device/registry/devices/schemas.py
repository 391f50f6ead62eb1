"""Devices on the wire, of the open API and below it of the console."""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.contracts.events import Connect
from libs.common.http import console
from libs.common.http.ids import Id, OptionalId
from libs.common.things import AccessMod, EntityType, ValueType
from services.device.things.model import ApplicationRef, DeviceType, Link, Location, Provisioning
from services.device.things.schemas import DeviceIds, DeviceResult, Line, Name, Search, Tags, Text

Part = Annotated[str, msgspec.Meta(max_length=255)]
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
    """Body of `POST /devices`. `profile` is the older name of `config`, JSON as text too.

    `sn` and `devEUI` are what some clients write for `snDevEUI`: refused by that name.
    """

    sn_dev_eui: str = msgspec.field(name="snDevEUI")
    sn: str | None = None
    dev_eui: str | None = msgspec.field(default=None, name="devEUI")
    name: Name
    description: Text | None = None
    project: Line | None = None
    tag: Tags | None = None
    model: Line | None = None
    auto_provision: bool | None = None
    config: dict[str, Any] | None = None
    profile: dict[str, Any] | str | None = None
    data_storage: bool | None = None


class UpdateDevice(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Body of `PUT /devices`; what is absent or null stays as it is."""

    device_id: Id
    name: Name
    tsl_version: Line | None = None
    description: Text | None = None
    project: Line | None = None
    tag: Tags | None = None
    data_storage: bool | None = None


class SearchDevices(Search, rename="camel", kw_only=True):
    """Body of `POST /devices/search`; every filter narrows, a blank one does not count.

    `sn`, `devEUI` and `imei` match whole, `keyword`, `name`, `model` and versions in part,
    all without regard to case. Of a list any value will do. Bounds of `electricity` (%)
    are inclusive. `autopStatus` is the older name of `rpsStatus`.
    """

    keyword: Line | None = None
    sn: Line | None = None
    dev_eui: Line | None = msgspec.field(default=None, name="devEUI")
    imei: Line | None = None
    name: Line | None = None
    model: Line | None = None
    hardware_version: Line | None = None
    firmware_version: Line | None = None
    connect_status: list[Connect] | None = None
    device_type: list[DeviceType] | None = None
    rps_status: list[Provisioning] | None = None
    autop_status: list[Provisioning] | None = None
    electricity_min: Percent | None = None
    electricity_max: Percent | None = None
    project: Line | None = None
    tag: Line | Tags | None = None
    application_id: Id | None = None


class DeviceRef(msgspec.Struct, rename="camel", omit_defaults=True):
    """A device as adding and updating it answer."""

    sn: str
    device_id: int
    dev_eui: str | None = msgspec.field(default=None, name="devEUI")
    imei: str | None = None


class DeviceRecord(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The whole record; `lastUpdateTime` is the time of the newest report in ms.

    `autopStatus` repeats `rpsStatus` under its older name.
    """

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
    connect_status: Connect
    license_status: str
    rps_status: Provisioning
    autop_status: Provisioning
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
    north: Latitude
    west: Longitude
    east: Longitude


class FindDevices(console.PageRequest, kw_only=True):
    """Body of `POST /device/search`; every filter narrows, of a list any value will do.

    `name` is a part of the name in any case, or the whole identifier; `identifier` is a part of
    that. `filter_not_grouped` leaves the devices that are in no group. A device without a place
    is in no `area`.
    """

    name: Part | None = None
    integration: Part | None = None
    identifier: Part | None = None
    group_id: OptionalId = None
    application_id: OptionalId = None
    filter_not_grouped: bool | None = None
    id_list: DeviceIds | None = None
    status: Annotated[list[Status], msgspec.Meta(max_length=3)] | None = None
    model: Annotated[list[Line], msgspec.Meta(max_length=100)] | None = None
    tags: Tags | None = None
    area: Area | None = None


class SentLocation(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A place as consoles write it: degrees are numbers, or text that is one."""

    latitude: float | Degrees | None = None
    longitude: float | Degrees | None = None
    address: Annotated[str, msgspec.Meta(max_length=255)] | None = None


class CreateDevice(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Body of `POST /device`; parameters of the integration's add service by entity key.

    The group is made when there is none of that name; an empty `location` is none.
    """

    name: Name
    integration: Part
    param_entities: dict[str, Any]
    group_name: GroupNameOrBlank | None = None
    location: SentLocation | None = None


class MoveDevices(msgspec.Struct, kw_only=True):
    """Body of `POST /device/move-to-group`; without a group they will be in none."""

    device_id_list: DeviceIds
    group_id: OptionalId = None


class TagDevices(msgspec.Struct, kw_only=True):
    """Body of `POST /device-batch/tag`; after OVERWRITE devices have exactly these tags."""

    operation: Literal["ADD", "OVERWRITE", "REMOVE"]
    device_id_list: DeviceIds
    tags: Tags


class DeviceResults(msgspec.Struct):
    """Answer of `POST /device-batch/…`: one result for each device, in the order they came."""

    results: list[DeviceResult]


class RenameDevice(msgspec.Struct):
    """Body of `PUT /device/{device_id}`."""

    name: Name


class DeviceMember(console.ResponseModel, kw_only=True):
    """An entity in a list of devices."""

    id: str
    key: str
    name: str
    type: EntityType
    value_type: ValueType
    value_attribute: dict[str, Any]
    access_mod: AccessMod | None = None
    description: str | None = None
    parent: str | None = None
    """Key of the OBJECT that it is a child of."""


class ShownDevice(console.ResponseModel, kw_only=True):
    """A device in a list; times in ms."""

    id: str
    key: str
    name: str
    integration: str
    integration_name: str | None = None
    """Absent when the integration is gone."""
    identifier: str
    additional_data: dict[str, Any]
    model: str
    tags: list[str]
    status: Literal["ONLINE", "OFFLINE"] | None = None
    """Absent until it is ONLINE for the first time."""
    status_updated_at: int | None = None
    """Since when it has the status."""
    last_reported_at: int | None = None
    """The time of its newest report; up to 10 s behind."""
    location: Location | None = None
    group_id: str | None = None
    group_name: str | None = None
    application_id: str | None = None
    """The application that has it; absent where it is the users' or nobody's."""
    application_name: str | None = None
    important_entities: list[DeviceMember] | None = None
    """What widgets show of it first; in pages of up to 100 devices."""
    common_entities: list[DeviceMember] | None = None
    """Its status, place and alarm; in pages of up to 100 devices."""
    created_at: int
    updated_at: int
    deletable: bool
    sends_frames: bool
    """Whether it sends bytes, which the codec of its product reads."""


class DeviceEntity(console.ResponseModel, kw_only=True):
    """An entity in the detail of its device."""

    id: str
    key: str
    name: str
    type: EntityType
    value_attribute: dict[str, Any]
    value_type: ValueType
    description: str | None = None


class DeviceDetail(ShownDevice, kw_only=True):
    """A device with its entities: each parent, then its children."""

    joined: int | None = None
    """When it joined its network last, ms."""
    link: Link | None = None
    user_nickname: str | None = None
    """Who added it; absent for a device that an application added, and for a deleted user."""
    entities: list[DeviceEntity]
