"""Devices on the wire of the management API (specification, "Device"; notes, section 3.7)."""

from typing import Annotated, Any

import msgspec

from libs.common.http.console import Id, PageRequest, Shown
from libs.common.things import EntityType, ValueType
from services.device.devices.fields import Name

Part = Annotated[str, msgspec.Meta(max_length=255)]


class SearchDevices(PageRequest, kw_only=True):
    """Body of `POST /device/search`: parts of the name and of the identifier, in any case."""

    name: Part | None = None
    identifier: Part | None = None


class CreateDevice(msgspec.Struct):
    """Body of `POST /device`; parameters of the integration's add service by entity key."""

    name: Name
    integration: Part
    param_entities: dict[str, Any]


class DeleteDevices(msgspec.Struct):
    """Body of `POST /device/batch-delete`."""

    device_id_list: Annotated[list[Id], msgspec.Meta(max_length=1000)]


class RenameDevice(msgspec.Struct):
    """Body of `PUT /device/{device_id}`."""

    name: Name


class ShownDevice(Shown, kw_only=True):
    """A device in a list; times in ms."""

    id: str
    key: str
    name: str
    integration: str
    integration_name: str | None = None
    """Absent when the integration is gone."""
    identifier: str
    additional_data: dict[str, Any]
    created_at: int
    updated_at: int
    deletable: bool


class DeviceEntity(Shown, kw_only=True):
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

    entities: list[DeviceEntity]


class ShownCredentials(msgspec.Struct):
    """What a device logs in with; the key is shown only here."""

    sn: str
    key: str
