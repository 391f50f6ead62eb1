"""Device documents: how they begin, and how answers show them."""

import json
from datetime import UTC, datetime
from typing import Any

from libs.common.errors import InvalidInput
from libs.common.identity import Principal
from libs.common.things import DIRECT
from services.device.devices.ports import Device
from services.device.devices.schemas import AddDevice, ApplicationRef, DeviceRecord, DeviceRef
from services.device.devices.serials import dev_eui_of, key_of
from services.device.products.schemas import Product


def new_device(
    device_id: int, serial: str, principal: Principal, product: Product, body: AddDevice
) -> Device:
    """The document of a device that has never been there."""
    return begin(device_id, serial, principal.tenant, product) | given_by(principal, body)


def begin(device_id: int, serial: str, tenant: str, product: Product) -> Device:
    """What every device has that has never been there; who adds it adds the rest."""
    now = datetime.now(UTC)
    dev_eui = dev_eui_of(serial)
    return {
        "_id": device_id,
        "tenant": tenant,
        "sn": serial,
        "snKey": key_of(serial),
        "integration": DIRECT,
        "identifier": serial,
        **({"devEUI": dev_eui} if dev_eui else {}),
        **follow(product),
        "connectStatus": "DISCONNECT",
        "licenseStatus": "VALID",
        "dataStorage": True,
        "createdAt": now,
        "updatedAt": now,
    }


def follow(product: Product) -> dict[str, Any]:
    """The fields by which a device follows a product, at its current version."""
    return {
        "model": product.model,
        "tslVersion": product.current_version,
        "deviceType": product.device_type,
    }


def given_by(principal: Principal, body: AddDevice) -> dict[str, Any]:
    """The fields that an application sets by adding a device, new or known."""
    fields: dict[str, Any] = {
        "name": body.name,
        "description": body.description or "",
        "project": body.project or "",
        "tag": list(dict.fromkeys(body.tag or [])),
        "rpsStatus": "WAITING" if body.auto_provision else "DISABLE",
        "application": {
            "applicationId": principal.application_id,
            "applicationName": principal.name,
        },
    }
    if body.data_storage is not None:
        fields["dataStorage"] = body.data_storage
    return fields


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
    return DeviceRef(device["sn"], device["_id"], device.get("devEUI"), device.get("imei"))


def record_of(device: Device, reported: int | None = None) -> DeviceRecord:
    """The whole record; `reported` (ms) is the newest report that latest values know."""
    application = device.get("application")
    battery = device.get("electricity")
    times = [time for time in (reported, device.get("lastUpdateTime")) if time is not None]
    return DeviceRecord(
        sn=device["sn"],
        device_id=device["_id"],
        dev_eui=device.get("devEUI"),
        imei=device.get("imei"),
        name=device["name"],
        description=device["description"],
        project=device["project"],
        tag=device["tag"],
        model=device["model"],
        tsl_version=device["tslVersion"],
        device_type=device["deviceType"],
        connect_status=device["connectStatus"],
        license_status=device["licenseStatus"],
        rps_status=device["rpsStatus"],
        autop_status=device["rpsStatus"],
        hardware_version=device.get("hardwareVersion"),
        firmware_version=device.get("firmwareVersion"),
        electricity=None if battery is None else int(battery),
        last_update_time=max(times, default=None),
        application=ApplicationRef(application["applicationId"], application["applicationName"])
        if application
        else None,
        mac=device.get("mac"),
        wlan_mac=device.get("wlanMac"),
        data_storage=device["dataStorage"],
    )
