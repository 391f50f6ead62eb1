"""Operations of applications on devices."""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from libs.common.contracts.auth import DeviceCredentials
from libs.common.decoding import copy_fields
from libs.common.errors import Conflict, InvalidInput, ThingwayError
from libs.common.identity import Principal
from libs.common.store.ids import IdAllocator
from libs.common.things import DIRECT_INTEGRATION
from libs.common.tsl import TslDocument
from services.device.commands.model import DEVICE_DELETED, DEVICE_REMOVED
from services.device.commands.service import CommandService
from services.device.members.device_keys import DeviceCredentialsClient
from services.device.registry.devices.ownership import DeviceRemover, OrphanCleaner
from services.device.registry.devices.schemas import (
    AddDevice,
    DevicePage,
    DeviceRecord,
    DeviceRef,
    SearchDevices,
    UpdateDevice,
)
from services.device.registry.devices.search import build_query
from services.device.registry.products.service import ProductService
from services.device.telemetry.latest_values import LatestValues
from services.device.things.device_store import DeviceStore
from services.device.things.errors import (
    device_exists_error,
    device_not_found,
    integration_device_error,
    rps_record_exists,
    unknown_version_error,
)
from services.device.things.model import ApplicationRef, Device, DeviceChanges
from services.device.things.product_model import Product
from services.device.things.serial_numbers import (
    SerialHolder,
    SerialTaken,
    check_serial,
    parse_dev_eui,
    serial_key,
)

log = logging.getLogger(__name__)


def new_device(device_id: int, serial: str, tenant: str, product: Product) -> Device:
    """Return a new device with its mandatory fields; the caller sets the others."""
    now = datetime.now(UTC)
    return Device(
        id=device_id,
        tenant=tenant,
        sn=serial,
        sn_key=serial_key(serial),
        identifier=serial,
        dev_eui=parse_dev_eui(serial),
        model=product.model,
        tsl_version=product.current_version,
        device_type=product.device_type,
        created_at=now,
        updated_at=now,
    )


def set_product(changes: DeviceChanges, product: Product) -> None:
    """Set the model, current TSL version and device type of a product in `changes`."""
    changes.model = product.model
    changes.tsl_version = product.current_version
    changes.device_type = product.device_type


def changes_from_request(principal: Principal, body: AddDevice) -> DeviceChanges:
    """Return the fields that an application sets when it adds a device."""
    return DeviceChanges(
        name=body.name,
        description=body.description or "",
        project=body.project or "",
        tag=list(dict.fromkeys(body.tag or [])),
        rps_status="WAITING" if body.auto_provision else "DISABLE",
        application=ApplicationRef(principal.application_id, principal.name),
        data_storage=msgspec.UNSET if body.data_storage is None else body.data_storage,
    )


def parse_config(body: AddDevice) -> dict[str, Any] | None:
    """Return the configuration to provision a device with, or None.

    Raises `InvalidInput` when it is required and missing or invalid.
    """
    if not body.auto_provision:
        return None
    if body.config is not None:
        return body.config
    if body.profile is None:
        raise InvalidInput("config is required when autoProvision is true", field="config")
    if isinstance(body.profile, dict):
        return body.profile
    try:
        profile = json.loads(body.profile)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"is not JSON: {error}", field="profile") from error
    if not isinstance(profile, dict):
        raise InvalidInput("must be a JSON object", field="profile")
    return profile


def to_device_ref(device: Device) -> DeviceRef:
    """Return the reference of an added or updated device."""
    return DeviceRef(device.sn, device.id, device.dev_eui, device.imei)


def to_device_record(device: Device, reported: int | None = None) -> DeviceRecord:
    """Return the complete record. `reported` is the time of the newest report, in ms, if known."""
    times = [time for time in (reported, device.last_update_time) if time is not None]
    return copy_fields(
        DeviceRecord,
        device,
        device_id=device.id,
        autop_status=device.rps_status,
        electricity=None if device.electricity is None else int(device.electricity),
        last_update_time=max(times, default=None),
    )


SERIAL_FIELD = "snDevEUI"
T = TypeVar("T")


@dataclass(frozen=True)
class DeviceService:
    """Operations on the devices of an application."""

    store: DeviceStore
    latest: LatestValues
    ids: IdAllocator
    products: ProductService
    provisioner: CommandService
    credentials: DeviceCredentialsClient
    remover: DeviceRemover
    orphans: OrphanCleaner

    async def add(self, principal: Principal, body: AddDevice) -> DeviceRef:
        """Add a new device, or assign an unassigned device of the tenant.

        An unassigned device keeps its id, its SN as first written and, unless `model` names
        another, its product. If the application owned it last, its values stay too. Raises
        `InvalidInput`, or `Conflict` when a device or an RPS record of any owner has the SN.
        """
        if body.sn is not None or body.dev_eui is not None:
            raise InvalidInput("give the SN or DevEUI as snDevEUI alone", field=SERIAL_FIELD)
        serial = check_serial(body.sn_dev_eui, SERIAL_FIELD)
        config = parse_config(body)
        holder, existing = await self.store.find_holder(serial_key(serial))
        if existing is not None:
            device = await self._assign_again(principal, existing, body, config)
        elif holder is not None:
            raise _serial_conflict(holder, serial)
        else:
            device = await self._create(principal, serial, body, config)
        if config is not None:
            await self._provision(device, config)
        return to_device_ref(device)

    async def _create(
        self, principal: Principal, serial: str, body: AddDevice, config: dict[str, Any] | None
    ) -> Device:
        product = await self.products.choose_for_device(
            principal.tenant, body.model, serial_key(serial)
        )
        device = new_device(await self.ids.allocate(), serial, principal.tenant, product)
        device = device.with_changes(changes_from_request(principal, body))
        if config is not None:
            await self.provisioner.validate(device, config)
        try:
            await self.store.insert([device])
        except SerialTaken as error:
            holder, _ = await self.store.find_holder(serial_key(serial))
            raise _serial_conflict(holder or "device", serial) from error
        return device

    async def _assign_again(
        self, principal: Principal, existing: Device, body: AddDevice, config: dict[str, Any] | None
    ) -> Device:
        existing = await self._require_unassigned(principal, existing, body.sn_dev_eui)
        changes = changes_from_request(principal, body)
        if body.model is not None and body.model != existing.model:
            product = await self.products.choose_for_device(
                principal.tenant, body.model, existing.sn_key
            )
            set_product(changes, product)
        if config is not None:
            await self.provisioner.validate(existing.with_changes(changes), config)
        is_new_owner = existing.removed_from != principal.application_id
        if is_new_owner:
            await self.provisioner.delete_profile(existing.id)
        try:
            device = await self.store.add_unassigned_to_application(
                existing, changes, is_new_owner=is_new_owner
            )
        except SerialTaken as error:
            raise rps_record_exists(body.sn_dev_eui, SERIAL_FIELD) from error
        if device is None:
            raise device_exists_error(body.sn_dev_eui, SERIAL_FIELD)
        return device

    async def _require_unassigned(
        self, principal: Principal, existing: Device, serial: str
    ) -> Device:
        """Return the existing device, released if orphaned; raise `Conflict` if it has an owner."""
        if existing.tenant == principal.tenant:
            if existing.application is not None and await self.orphans.release_if_orphaned(
                existing
            ):
                existing = await self.store.find_by_id(existing.id) or existing
            if existing.is_unassigned:
                return existing
        raise device_exists_error(serial, SERIAL_FIELD)

    async def _provision(self, device: Device, config: dict[str, Any]) -> None:
        """Start the configuration of an added device; log a failure.

        The device then stays `WAITING`, and a configuration task can complete it.
        """
        try:
            await self.provisioner.provision(device, config)
        except ThingwayError:
            log.exception("device %d was added, but its configuration failed", device.id)

    async def get(self, principal: Principal, device_id: int) -> DeviceRecord:
        """Return the whole record of a device."""
        device = await self._find(principal, device_id)
        times = await self.latest.find_report_times([device_id])
        return to_device_record(device, times.get(device_id))

    async def search(self, principal: Principal, search: SearchDevices) -> DevicePage:
        """Return a page of the devices that match; see `SearchDevices`."""
        query = build_query(principal.tenant, principal.application_id, search)
        rows, total = await self.store.search(query)
        devices = [device async for device in rows]
        times = await self.latest.find_report_times([device.id for device in devices])
        records = [to_device_record(device, times.get(device.id)) for device in devices]
        return DevicePage(search.page_size, search.page_number, total, records)

    async def update(self, principal: Principal, body: UpdateDevice) -> DeviceRef:
        """Change a device; raise `InvalidInput` for an unknown version of its product."""
        device = await self._find(principal, body.device_id)
        changes = DeviceChanges(
            name=body.name,
            description=_unset_if_none(body.description),
            project=_unset_if_none(body.project),
            tag=msgspec.UNSET if body.tag is None else list(dict.fromkeys(body.tag)),
            data_storage=_unset_if_none(body.data_storage),
        )
        if body.tsl_version is not None and body.tsl_version != device.tsl_version:
            versions = await self.products.list_versions(principal.tenant, device.model)
            if body.tsl_version not in versions:
                raise unknown_version_error(device.model, body.tsl_version)
            changes.tsl_version = body.tsl_version
        updated = await self.store.update(
            principal.tenant, body.device_id, changes, principal.application_id
        )
        return to_device_ref(_require_device(updated, body.device_id))

    async def remove_from_application(self, principal: Principal, device_id: int) -> None:
        """Remove a device from its application; its id and history stay.

        Its key ends, unless a user or an integration added the device: then the device belongs to
        the users again and keeps its key.
        """
        device = await self._find(principal, device_id)

        async def remove() -> None:
            _require_device(
                await self.store.remove_from_application(device, principal.application_id),
                device_id,
            )

        await self.remover.remove_from_application(device, remove, DEVICE_REMOVED)

    async def delete(self, principal: Principal, device_id: int) -> str:
        """Delete a device and its key; return its SN.

        Also deletes an unassigned device that the application owned last. Raises `Conflict` for a
        device of an integration, which would add it again.
        """
        tenant, owner = principal.tenant, principal.application_id
        device = _require_device(
            await self.store.find_deletable(tenant, device_id, owner), device_id
        )
        _check_direct(device)

        async def delete() -> None:
            _require_device(await self.store.delete(tenant, device_id, owner), device_id)

        await self.remover.remove(device, delete, DEVICE_DELETED)
        return device.sn

    async def get_thing_specification(self, principal: Principal, device_id: int) -> TslDocument:
        """Return the TSL of a device, as it was imported and normalised."""
        device = await self._find(principal, device_id)
        return await self.products.find_tsl_or_open_tsl(
            device.tenant, device.model, device.tsl_version
        )

    async def issue_credentials(self, principal: Principal, device_id: int) -> DeviceCredentials:
        """Issue a new key for a device; the previous one stops working.

        Raises `Conflict` for a device of an integration, which does not log in itself.
        """
        device = await self._find(principal, device_id)
        _check_direct(device)
        check_exists = partial(self._find, principal, device_id)
        return await self.credentials.issue(device, check_exists)

    async def _find(self, principal: Principal, device_id: int) -> Device:
        device = await self.store.find(principal.tenant, device_id, principal.application_id)
        return _require_device(device, device_id)


def _unset_if_none(value: T | None) -> T | msgspec.UnsetType:
    """Return the value, or UNSET for None: absent and null fields stay unchanged."""
    return msgspec.UNSET if value is None else value


def _require_device(device: Device | None, device_id: int) -> Device:
    if device is None:
        raise device_not_found(device_id)
    return device


def _check_direct(device: Device) -> None:
    if device.integration != DIRECT_INTEGRATION:
        raise integration_device_error(device.integration)


def _serial_conflict(holder: SerialHolder, serial: str) -> Conflict:
    explain = rps_record_exists if holder == "rps" else device_exists_error
    return explain(serial, SERIAL_FIELD)
