"""Devices and things as they are stored.

Stored fields have the names of the struct fields in camelCase; `id` is `_id` and `dev_eui` is
`devEUI`. The document of a new device omits fields that are None, except `application`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeVar
from uuid import uuid4

import msgspec

from libs.common.bus import OutboxEntry
from libs.common.bus.event_shortening import encode_shortened_event
from libs.common.bus.subjects import device_event
from libs.common.clock import now_ms
from libs.common.contracts.events import ConnectStatus, DeviceChanged, DeviceProfile
from libs.common.store.mongo import Document
from libs.common.things import DIRECT_INTEGRATION, GENERIC_MODEL, device_key
from libs.common.tsl import Tsl

DeviceType = Literal["GATEWAY", "SUB_DEVICE", "COMMON"]
ProvisioningStatus = Literal["DISABLE", "WAITING", "SUCCESS"]

RECORD_FIELD_BY_PROPERTY = {
    "hardware_version": "hardwareVersion",
    "firmware_version": "firmwareVersion",
    "battery": "electricity",
    "imei": "imei",
    "mac": "mac",
    "wlan_mac": "wlanMac",
}
"""The stored field of the device record, by the key of the reported property that it shows."""
NETWORK_REPORTED_FIELDS = frozenset({"joined", "link"})
"""Record fields that network servers report, not devices."""

S = TypeVar("S", bound=msgspec.Struct)
_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)
"""Creation time of a device whose age is unknown."""


class MemberSetKey(NamedTuple):
    """Key of a set of members with their names, which all devices with this key have."""

    model: str
    version: str
    shape: str = ""
    """Id of the reported paths and types for the product `generic`; then `version` is empty."""
    names: str = ""
    """Names that users gave entities, as in `ListedDevice.entity_names`."""


class ApplicationRef(msgspec.Struct, rename="camel"):
    """The application that a device belongs to."""

    application_id: int
    application_name: str = ""


class Location(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place on Earth (WGS 84), in degrees."""

    latitude: float
    longitude: float
    address: str | None = None


class NetworkStatus(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The last status that a device reported to its network server."""

    at: int
    """Unix time in ms."""
    battery: float | None = None
    """Percent; null if unknown, or with external power."""
    external: bool = False
    """Whether the device has external power."""
    margin: float | None = None
    """dB by which the device received the request above the demodulation floor."""


class ListedDevice(msgspec.Struct, rename="camel", kw_only=True):
    """The fields of a device that lists and entities need."""

    id: int = msgspec.field(name="_id")
    tenant: str
    sn: str
    integration: str = DIRECT_INTEGRATION
    identifier: str = ""
    """Identifies the device within its integration."""
    name: str = ""
    model: str
    tsl_version: str
    shape: str | None = None
    """Id of the shape of its reports (`members.shapes`), for the product `generic`."""
    entity_names: str | None = None
    """Names that users gave its entities; see `services.device.things.thing_store`."""
    group: int | None = None
    """Id of its group."""
    created_at: datetime = _UNKNOWN_TIME
    updated_at: datetime = _UNKNOWN_TIME

    @property
    def thing_key(self) -> str:
        """Return the key of the device, the prefix of its entity keys."""
        return device_key(self.integration, self.sn)

    @property
    def member_set_key(self) -> MemberSetKey:
        """Return the key of the device's member set."""
        return member_set_key(self.model, self.tsl_version, self.shape, self.entity_names)


class Device(ListedDevice, kw_only=True):
    """The whole record of a device."""

    sn_key: str
    """The SN in upper case, unique on the platform."""
    dev_eui: str | None = msgspec.field(name="devEUI", default=None)
    description: str = ""
    project: str = ""
    tag: list[str] = []
    device_type: DeviceType = "COMMON"
    application: ApplicationRef | None = None
    removed_from: int | None = None
    """The application that owned an unassigned device last."""
    owned_since: int = 0
    """Start of the current ownership, ms. Older reports belong to a previous owner and are
    hidden."""
    user_id: int | None = None
    """The user who added it through its integration, or removed it from an application."""
    additional: dict[str, Any] | None = None
    """Data that its integration stores with it."""
    connect_status: ConnectStatus = "DISCONNECT"
    """DISCONNECT until it is ONLINE for the first time."""
    connect_changed: datetime | None = None
    """Time of the last change of `connect_status`."""
    location: Location | None = None
    license_status: str = "VALID"
    rps_status: ProvisioningStatus = "DISABLE"
    data_storage: bool = True
    hardware_version: str | None = None
    firmware_version: str | None = None
    electricity: int | float | None = None
    """Charge of the battery in percent."""
    imei: str | None = None
    mac: str | None = None
    wlan_mac: str | None = None
    joined: int | None = None
    """Time of the last join to its network, ms."""
    link: NetworkStatus | None = None
    last_update_time: int | None = None
    """Time of the newest report, ms; up to 10 s behind."""

    @property
    def application_id(self) -> int | None:
        """Return the id of the application that owns the device, if any."""
        return self.application.application_id if self.application else None

    @property
    def is_owned_by_users(self) -> bool:
        """Return whether the device belongs to the users while no application owns it."""
        return self.user_id is not None or self.integration != DIRECT_INTEGRATION

    @property
    def is_unassigned(self) -> bool:
        """Return whether neither an application nor the users own the device.

        Any application of the tenant may then add it again.
        """
        return self.application is None and not self.is_owned_by_users

    def with_changes(self, changes: "DeviceChanges") -> "Device":
        """Return a copy of the device with changes."""
        fields = {
            name: value
            for name in changes.__struct_fields__
            if (value := getattr(changes, name)) is not msgspec.UNSET
        }
        return msgspec.structs.replace(self, **fields)


class DeviceChanges(msgspec.Struct, rename="camel", kw_only=True):
    """Changes to a device by users and applications; unset fields stay."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType = msgspec.UNSET
    project: str | msgspec.UnsetType = msgspec.UNSET
    tag: list[str] | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET
    tsl_version: str | msgspec.UnsetType = msgspec.UNSET
    device_type: DeviceType | msgspec.UnsetType = msgspec.UNSET
    application: ApplicationRef | msgspec.UnsetType | None = msgspec.UNSET
    rps_status: ProvisioningStatus | msgspec.UnsetType = msgspec.UNSET
    data_storage: bool | msgspec.UnsetType = msgspec.UNSET
    additional: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    group: int | msgspec.UnsetType | None = msgspec.UNSET
    location: Location | msgspec.UnsetType | None = msgspec.UNSET


class DeviceWithPresence(msgspec.Struct, rename="camel", kw_only=True):
    """The identity of a device, and the fields that decide whether it is ONLINE."""

    id: int = msgspec.field(name="_id")
    tenant: str
    sn: str
    sn_key: str
    integration: str = DIRECT_INTEGRATION
    name: str = ""
    model: str
    dev_eui: str | None = msgspec.field(name="devEUI", default=None)
    application: ApplicationRef | None = None
    group: int | None = None
    connect_status: ConnectStatus = "DISCONNECT"
    http_until: datetime | None = None
    """The time until which the last contact (see `HttpPresence`) keeps the device ONLINE."""


class OwnerAndStatus(msgspec.Struct, rename="camel"):
    """The application that owns a device, and the connection state of the device."""

    application: ApplicationRef | None = None
    connect_status: ConnectStatus = "DISCONNECT"

    @property
    def application_id(self) -> int | None:
        """Return the id of the application that owns the device, if any."""
        return self.application.application_id if self.application else None


class StorageSettings(msgspec.Struct, rename="camel"):
    """The fields of a device that history needs, and the content hash of its TSL."""

    tenant: str
    model: str
    tsl_version: str
    tsl: list[dict[str, str]]
    """A list with the hash of its TSL, `[{"hash": …}]`; empty without a TSL."""
    data_storage: bool = True
    owned_since: int = 0


@dataclass(slots=True, frozen=True)
class Thing:
    """A device, an integration or a custom entity, for reports and commands."""

    id: int
    sn: str
    tenant: str
    model: str
    tsl_version: str
    application_id: int | None
    data_storage: bool
    device_type: str
    online: bool
    """Whether the device was ONLINE at `loaded_at`."""
    profile: DeviceProfile
    tsl: Tsl
    reported_fields: dict[str, Any]
    """Fields of the device record that reports may change (`firmwareVersion`, ...)."""
    loaded_at: float
    """Monotonic time at which the record was read."""
    integration: str = DIRECT_INTEGRATION
    """The integration of the device, or the one that the thing represents."""
    device: bool = True
    """False for the thing of an integration and for a custom entity."""
    additional: dict[str, Any] | None = None
    """Data that its integration stores with the device."""
    owned_since: int = 0
    """Start of the current ownership, ms. Older reports are not part of its latest values."""
    needs_configuration: bool = False
    """Whether the device waited for its first configuration at `loaded_at`."""


def projection_for(form: type[msgspec.Struct]) -> dict[str, int]:
    """Return the projection that reads the fields of a struct."""
    return dict.fromkeys((field.encode_name for field in msgspec.structs.fields(form)), 1)


def device_from_document(document: Document) -> Device:
    """Return the device of a document."""
    return msgspec.convert(document, Device)


def device_document(device: Device) -> Document:
    """Return the document of a new device."""
    fields: Document = msgspec.to_builtins(device, builtin_types=(datetime,))
    return {
        name: value for name, value in fields.items() if value is not None or name == "application"
    }


def member_set_key(
    model: str, version: str, shape: str | None, names: str | None = None
) -> MemberSetKey:
    """Return the key of a product version or, for the product `generic`, of a shape."""
    version, shape = ("", shape or "") if model == GENERIC_MODEL else (version, "")
    return MemberSetKey(model, version, shape, names or "")


def reported_fields(device: Device) -> dict[str, Any]:
    """Return the reported fields of the device record."""
    return {
        "hardwareVersion": device.hardware_version,
        "firmwareVersion": device.firmware_version,
        "electricity": device.electricity,
        "imei": device.imei,
        "mac": device.mac,
        "wlanMac": device.wlan_mac,
        "location": device.location,
    }


def event_profile(device: Device | DeviceWithPresence) -> DeviceProfile:
    """Return the device as events describe it."""
    return DeviceProfile(
        device_id=device.id,
        sn=device.sn,
        name=device.name,
        model=device.model,
        dev_eui=device.dev_eui,
        application_id=device.application.application_id if device.application else None,
        thing_key=device_key(device.integration, device.sn),
        group_id=device.group,
    )


DeviceChangeKind = Literal["added", "updated", "deleted", "removed"]


def change_event(device: Device, change: DeviceChangeKind) -> OutboxEntry:
    """Return the event `device.{id}.(added|updated|deleted)` of a change.

    The removal from an application is an update.
    """
    event = DeviceChanged(
        event_id=str(uuid4()),
        created_at=now_ms(),
        tenant=device.tenant,
        device=event_profile(device),
        change=change,
    )
    name = "updated" if change == "removed" else change
    return OutboxEntry(device_event(device.tenant, device.id, name), encode_shortened_event(event))
