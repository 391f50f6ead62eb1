"""Device documents: how they begin, and how answers show them."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.common.errors import InvalidInput
from libs.common.identity import Principal
from services.device.devices.schemas import AddDevice, DeviceRecord, DeviceRef
from services.device.things.model import ApplicationRef, Device, DeviceChanges
from services.device.things.product_model import Product
from services.device.things.serial_numbers import dev_eui_of, key_of


def begin(device_id: int, serial: str, tenant: str, product: Product) -> Device:
    """What every device has that has never been there; who adds it adds the rest."""
    now = datetime.now(UTC)
    return Device(
        id=device_id,
        tenant=tenant,
        sn=serial,
        sn_key=key_of(serial),
        identifier=serial,
        dev_eui=dev_eui_of(serial),
        model=product.model,
        tsl_version=product.current_version,
        device_type=product.device_type,
        created_at=now,
        updated_at=now,
    )


def follow(changes: DeviceChanges, product: Product) -> None:
    """Let a device follow a product, at its current version."""
    changes.model = product.model
    changes.tsl_version = product.current_version
    changes.device_type = product.device_type


def given_by(principal: Principal, body: AddDevice) -> DeviceChanges:
    """The fields that an application sets by adding a device, new or known."""
    return DeviceChanges(
        name=body.name,
        description=body.description or "",
        project=body.project or "",
        tag=list(dict.fromkeys(body.tag or [])),
        rps_status="WAITING" if body.auto_provision else "DISABLE",
        application=ApplicationRef(principal.application_id, principal.name),
        data_storage=msgspec.UNSET if body.data_storage is None else body.data_storage,
    )


def config_of(body: AddDevice) -> dict[str, Any] | None:
    """The configuration to provision a device with, None when it shall not be.

    Raises `InvalidInput` when it is asked for and missing or unreadable.
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


def ref_of(device: Device) -> DeviceRef:
    """The device as adding and updating it answer."""
    return DeviceRef(device.sn, device.id, device.dev_eui, device.imei)


def record_of(device: Device, reported: int | None = None) -> DeviceRecord:
    """The whole record; `reported` (ms) is the newest report that latest values know."""
    times = [time for time in (reported, device.last_update_time) if time is not None]
    return DeviceRecord(
        sn=device.sn,
        device_id=device.id,
        dev_eui=device.dev_eui,
        imei=device.imei,
        name=device.name,
        description=device.description,
        project=device.project,
        tag=device.tag,
        model=device.model,
        tsl_version=device.tsl_version,
        device_type=device.device_type,
        connect_status=device.connect_status,
        license_status=device.license_status,
        rps_status=device.rps_status,
        autop_status=device.rps_status,
        hardware_version=device.hardware_version,
        firmware_version=device.firmware_version,
        electricity=None if device.electricity is None else int(device.electricity),
        last_update_time=max(times, default=None),
        application=device.application,
        mac=device.mac,
        wlan_mac=device.wlan_mac,
        data_storage=device.data_storage,
    )
