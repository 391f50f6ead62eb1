"""What may be done with devices. Every caller sees those of its application only."""

import json
import logging
from datetime import UTC, datetime
from typing import Any, Protocol

from libs.common.errors import InvalidInput, ThingwayError
from libs.common.identity import Principal
from libs.common.tsl import TslDocument
from services.device.devices.errors import device_exists, rps_record_exists, unknown_version
from services.device.devices.records import record_of, ref_of
from services.device.devices.schemas import (
    AddDevice,
    Credentials,
    DevicePage,
    DeviceRecord,
    DeviceRef,
    SearchDevices,
    UpdateDevice,
)
from services.device.devices.search import Query, query_of
from services.device.devices.serials import (
    Holder,
    SerialTaken,
    check_serial,
    dev_eui_of,
    key_of,
)
from services.device.products.schemas import Product
from services.device.things.access import device_not_found

log = logging.getLogger(__name__)

SERIAL_FIELD = "snDevEUI"

Device = dict[str, Any]


class Devices(Protocol):
    """What the service needs of its store."""

    async def with_serial(self, key: str) -> tuple[Holder | None, Device | None]:
        """What holds an SN, and the device when it is one."""

    async def find(self, tenant: str, application_id: int, device_id: int) -> Device | None:
        """A device of the application."""

    async def search(self, query: Query) -> tuple[list[Device], int]:
        """A page and the number of all matches."""

    async def report_times(self, device_ids: list[int]) -> dict[int, int]:
        """Times of the newest reports, in ms."""

    async def insert(self, device: Device) -> None:
        """Write a new device; raises `SerialTaken`."""

    async def attach(self, device_id: int, changes: dict[str, Any]) -> Device | None:
        """Give a device without application to one."""

    async def update(
        self, tenant: str, application_id: int, device_id: int, changes: dict[str, Any]
    ) -> Device | None:
        """Change a device."""

    async def detach(self, tenant: str, application_id: int, device_id: int) -> Device | None:
        """Take a device from its application."""

    async def delete(self, tenant: str, application_id: int, device_id: int) -> Device | None:
        """Delete a device."""


class Ids(Protocol):
    """Gives device ids."""

    async def take(self) -> int:
        """An id that nobody else gets."""


class Catalogue(Protocol):
    """What devices need to know of products."""

    async def choose(self, tenant: str, model: str | None, serial: str) -> Product:
        """The product of a new device."""

    async def versions(self, tenant: str, model: str) -> list[str]:
        """The TSL versions of a product."""

    async def tsl(self, tenant: str, model: str, version: str) -> TslDocument:
        """The document of one version."""


class Provisioner(Protocol):
    """Sends a first configuration to a device that was added with `autoProvision`."""

    async def validate(self, device: Device, config: dict[str, Any]) -> None:
        """Raise `InvalidInput` when the device's TSL does not accept `config`."""

    async def provision(self, device: Device, config: dict[str, Any]) -> None:
        """Begin to configure a device that has just been added."""


class CredentialsGateway(Protocol):
    """Keeps the keys of devices."""

    async def issue(self, sn: str, device_id: int, tenant: str) -> Credentials:
        """Make a new key; the old one dies."""

    async def revoke(self, sn: str, device_id: int, tenant: str) -> None:
        """End the key of this device."""


class DeviceService:
    """Devices of an application."""

    def __init__(
        self,
        store: Devices,
        ids: Ids,
        catalogue: Catalogue,
        provisioner: Provisioner,
        credentials: CredentialsGateway,
    ) -> None:
        self._store = store
        self._ids = ids
        self._catalogue = catalogue
        self._provisioner = provisioner
        self._credentials = credentials

    async def add(self, principal: Principal, body: AddDevice) -> DeviceRef:
        """Add a device, or add one again that was removed from its application.

        A device added again keeps its id, its SN as first written and, unless `model`
        names another, its product. Raises `InvalidInput`, or `Conflict` when the SN is
        taken by a device or an RPS record, whoever they belong to.
        """
        serial = check_serial(body.sn_dev_eui, SERIAL_FIELD)
        config = _config(body)
        holder, known = await self._store.with_serial(key_of(serial))
        if known is not None:
            device = await self._again(principal, known, body)
        elif holder is not None:
            raise _taken(holder, serial)
        else:
            device = await self._new(principal, serial, body)
        if config is not None:
            await self._provisioner.validate(device, config)
        if known is not None:
            kept = ("_id", "tenant", "sn", "snKey", "updatedAt")
            changes = {name: value for name, value in device.items() if name not in kept}
            attached = await self._store.attach(device["_id"], changes)
            if attached is None:
                raise device_exists(serial, SERIAL_FIELD)
            device = attached
        else:
            await self._insert(device)
        if config is not None:
            await self._provision(device, config)
        return ref_of(device)
