"""Devices, things and what is known of them, as they are stored.

The names of stored fields are those of the structs in camelCase, `id` is `_id` and `dev_eui`
`devEUI`. A document has no field for what is None, but `application`, which is null then.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeVar
from uuid import uuid4

import msgspec

from libs.common.bus import OutboxEntry
from libs.common.bus.fitting import fitted
from libs.common.bus.subjects import device_event
from libs.common.clock import now_ms
from libs.common.contracts.events import Connect, DeviceChanged, DeviceProfile
from libs.common.store.mongo import Document
from libs.common.things import DIRECT, GENERIC, device_key
from libs.common.tsl import Tsl

DeviceType = Literal["GATEWAY", "SUB_DEVICE", "COMMON"]
Provisioning = Literal["DISABLE", "WAITING", "SUCCESS"]

FACTS = {
    "hardware_version": "hardwareVersion",
    "firmware_version": "firmwareVersion",
    "battery": "electricity",
    "imei": "imei",
    "mac": "mac",
    "wlan_mac": "wlanMac",
}
"""Reported properties that the device record shows, and their names there."""
TOLD = frozenset({"joined", "link"})
"""Facts that network servers tell, not reports."""

S = TypeVar("S", bound=msgspec.Struct)
_BEGINNING = datetime.fromtimestamp(0, UTC)
"""Of a device of unknown age."""


class ModelKey(NamedTuple):
    """What devices of the same members have in common."""

    model: str
    version: str
    shape: str = ""
    """Of devices of the open product, which have no version here."""
    names: str = ""
    """See `ListedDevice.entity_names`."""


class ApplicationRef(msgspec.Struct, rename="camel"):
    """The application that a device belongs to."""

    application_id: int
    application_name: str = ""


class Location(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place on Earth (WGS 84), in degrees."""

    latitude: float
    longitude: float
    address: str | None = None


class Link(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a device told its network server of itself when it was asked last."""

    at: int
    """ms"""
    battery: float | None = None
    """Percent; None where it does not know, or is powered from outside."""
    external: bool = False
    """Whether it is powered from outside."""
    margin: float | None = None
    """dB by which it heard the request above the floor."""


class ListedDevice(msgspec.Struct, rename="camel", kw_only=True):
    """What lists and entities show of a device."""

    id: int = msgspec.field(name="_id")
    tenant: str
    sn: str
    integration: str = DIRECT
    identifier: str = ""
    """How its integration calls it."""
    name: str = ""
    model: str
    tsl_version: str
    shape: str | None = None
    """What it has reported, when its product is open; see `entities.shapes`."""
    entity_names: str | None = None
    """What users call its entities; see `services.device.things.thing_store`."""
    group: int | None = None
    """The group that it is in."""
    created_at: datetime = _BEGINNING
    updated_at: datetime = _BEGINNING

    @property
    def thing_key(self) -> str:
        """The key that the entity keys of the device begin with."""
        return device_key(self.integration, self.sn)

    @property
    def model_key(self) -> ModelKey:
        """The model that it is of."""
        return model_key(self.model, self.tsl_version, self.shape, self.entity_names)


class Device(ListedDevice, kw_only=True):
    """The whole record."""

    sn_key: str
    """The SN in upper case, unique on the platform."""
    dev_eui: str | None = msgspec.field(name="devEUI", default=None)
    description: str = ""
    project: str = ""
    tag: list[str] = []
    device_type: DeviceType = "COMMON"
    application: ApplicationRef | None = None
    removed_from: int | None = None
    """The application that it belonged to last, while it is nobody's."""
    owned_since: int = 0
    """ms: what was reported before was another application's."""
    user_id: int | None = None
    """Who added it through its integration, or took it from an application."""
    additional: dict[str, Any] | None = None
    """What its integration keeps with it."""
    connect_status: Connect = "DISCONNECT"
    """DISCONNECT until it is ONLINE for the first time."""
    connect_changed: datetime | None = None
    """Since when it is what it is."""
    location: Location | None = None
    license_status: str = "VALID"
    rps_status: Provisioning = "DISABLE"
    data_storage: bool = True
    hardware_version: str | None = None
    firmware_version: str | None = None
    electricity: int | float | None = None
    """%"""
    imei: str | None = None
    mac: str | None = None
    wlan_mac: str | None = None
    joined: int | None = None
    """When it joined its network last, in ms."""
    link: Link | None = None
    last_update_time: int | None = None
    """Of the newest report, in ms; up to 10 s behind."""

    @property
    def application_id(self) -> int | None:
        """Of the application that it belongs to."""
        return self.application.application_id if self.application else None

    @property
    def given(self) -> bool:
        """Whether users have added it: it is theirs while no application has it."""
        return self.user_id is not None or self.integration != DIRECT

    @property
    def nobodys(self) -> bool:
        """Whether it was removed from its application: then any of its tenant may add it."""
        return self.application is None and not self.given

    def changed(self, changes: "DeviceChanges") -> "Device":
        """The device with changes."""
        given = {
            name: value
            for name in changes.__struct_fields__
            if (value := getattr(changes, name)) is not msgspec.UNSET
        }
        return msgspec.structs.replace(self, **given)


class DeviceChanges(msgspec.Struct, rename="camel", kw_only=True):
    """What people and applications change of a device; what is not given stays."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType = msgspec.UNSET
    project: str | msgspec.UnsetType = msgspec.UNSET
    tag: list[str] | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET
    tsl_version: str | msgspec.UnsetType = msgspec.UNSET
    device_type: DeviceType | msgspec.UnsetType = msgspec.UNSET
    application: ApplicationRef | msgspec.UnsetType | None = msgspec.UNSET
    rps_status: Provisioning | msgspec.UnsetType = msgspec.UNSET
    data_storage: bool | msgspec.UnsetType = msgspec.UNSET
    additional: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    group: int | msgspec.UnsetType | None = msgspec.UNSET
    location: Location | msgspec.UnsetType | None = msgspec.UNSET


class PresentDevice(msgspec.Struct, rename="camel", kw_only=True):
    """What presence needs of a device."""

    id: int = msgspec.field(name="_id")
    tenant: str
    sn: str
    sn_key: str
    integration: str = DIRECT
    name: str = ""
    model: str
    dev_eui: str | None = msgspec.field(name="devEUI", default=None)
    application: ApplicationRef | None = None
    group: int | None = None
    connect_status: Connect = "DISCONNECT"
    http_until: datetime | None = None
    """Until when a report over HTTP makes it ONLINE."""


class Standing(msgspec.Struct, rename="camel"):
    """What the delivery of commands needs of a device."""

    application: ApplicationRef | None = None
    connect_status: Connect = "DISCONNECT"

    @property
    def application_id(self) -> int | None:
        """Of the application that it belongs to."""
        return self.application.application_id if self.application else None


class StorageOf(msgspec.Struct, rename="camel"):
    """What history needs of a device."""

    tenant: str
    model: str
    tsl_version: str
    data_storage: bool = True
    owned_since: int = 0


@dataclass(slots=True, frozen=True)
class Thing:
    """A device as reports and commands see it."""

    id: int
    sn: str
    tenant: str
    model: str
    tsl_version: str
    application_id: int | None
    data_storage: bool
    device_type: str
    online: bool
    """Whether it was connected when this was read."""
    profile: DeviceProfile
    tsl: Tsl
    facts: dict[str, Any]
    """Fields of the device record that reports may change (`firmwareVersion`, ...)."""
    loaded: float
    integration: str = DIRECT
    """Which integration it belongs to, or is the thing of."""
    device: bool = True
    """False for an integration's own thing and for a custom entity."""
    additional: dict[str, Any] | None = None
    """What its integration keeps with the device."""
    owned_since: int = 0
    """ms: what was reported before is none of its values now."""


def stored_fields(form: type[msgspec.Struct]) -> dict[str, int]:
    """The projection that reads what a struct has."""
    return dict.fromkeys((field.encode_name for field in msgspec.structs.fields(form)), 1)


def device_of(document: Document) -> Device:
    """The device that a document is."""
    return msgspec.convert(document, Device)


def document_of(device: Device) -> Document:
    """The document of a new device."""
    fields: Document = msgspec.to_builtins(device, builtin_types=(datetime,))
    return {
        name: value for name, value in fields.items() if value is not None or name == "application"
    }


def model_key(model: str, version: str, shape: str | None, names: str | None = None) -> ModelKey:
    """The model of a product and version, or of a shape where the product is open."""
    version, shape = ("", shape or "") if model == GENERIC else (version, "")
    return ModelKey(model, version, shape, names or "")


def facts_of(device: Device) -> dict[str, Any]:
    """What its record shows of what it has reported."""
    return {
        "hardwareVersion": device.hardware_version,
        "firmwareVersion": device.firmware_version,
        "electricity": device.electricity,
        "imei": device.imei,
        "mac": device.mac,
        "wlanMac": device.wlan_mac,
        "location": device.location,
    }


def profile_of(device: Device | PresentDevice) -> DeviceProfile:
    """The device as events name it."""
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


Change = Literal["added", "updated", "deleted", "removed"]


def changed(device: Device, change: Change) -> OutboxEntry:
    """`device.{id}.(added|updated|deleted)`; removed from its application is an update."""
    event = DeviceChanged(
        event_id=str(uuid4()),
        created_at=now_ms(),
        tenant=device.tenant,
        device=profile_of(device),
        change=change,
    )
    what = "updated" if change == "removed" else change
    return OutboxEntry(device_event(device.tenant, device.id, what), fitted(event))
