"""Errors about devices and products."""

from libs.common.errors import Conflict, InvalidInput, NotFound


def device_exists(serial: str, field: str) -> Conflict:
    """409: the SN is a device already, whoever it belongs to."""
    return Conflict(
        f"{field}: {serial} is a device already", field=field, code="device_already_exists"
    )


def device_is_taken(serial: str, field: str) -> Conflict:
    """The same for users, with a code that consoles have a text for."""
    return Conflict(
        f"{field}: {serial} is a device already", field=field, code="duplicated_device_eui"
    )


def rps_record_exists(serial: str, field: str) -> Conflict:
    """409: the SN has an RPS record, which must be deleted first."""
    return Conflict(
        f"{field}: {serial} has an RPS record; delete it first",
        field=field,
        code="rps_record_exists",
    )


def has_integration(integration: str) -> Conflict:
    """409: users manage the device, through its integration."""
    return Conflict(
        f"the device comes through the integration {integration}: users manage it",
        field="deviceId",
        code="device_of_integration",
    )


def unknown_version(model: str, version: str) -> InvalidInput:
    """400: the product has no such TSL version."""
    return InvalidInput(
        f"tslVersion: the product {model} has no version {version}", field="tslVersion"
    )


def unknown_model(model: str) -> InvalidInput:
    """400: a device names a product that the tenant does not have."""
    return InvalidInput(f"model: there is no product {model}", field="model")


def device_not_found(device_id: int) -> NotFound:
    """404, also for devices of other applications: their ids are nobody's business."""
    return NotFound(f"there is no device {device_id}", field="deviceId", code="device_not_found")


def product_not_found(model: str) -> NotFound:
    """404: the tenant has no such product."""
    return NotFound(f"there is no product {model}", field="model", code="product_not_found")


def codec_not_found(model: str) -> NotFound:
    """404: the product has no codec."""
    return NotFound(f"the product {model} has no codec", field="model", code="codec_not_found")


def built_in(model: str) -> Conflict:
    """409: the product belongs to the platform."""
    return Conflict(
        f"the product {model} is built in and cannot be changed",
        field="model",
        code="product_built_in",
    )


def product_in_use(model: str) -> Conflict:
    """409: devices are of this product."""
    return Conflict(f"the product {model} still has devices", field="model", code="product_in_use")


def version_in_use(model: str, version: str) -> Conflict:
    """409: devices follow this very version, so its content stays."""
    return Conflict(
        f"tsl.version: devices use version {version} of {model}; "
        "give the changed TSL another version",
        field="tsl.version",
        code="tsl_version_in_use",
    )


def prefix_taken(prefix: str, model: str) -> Conflict:
    """409: another product answers to this prefix."""
    return Conflict(
        f"snPrefixes: {prefix} belongs to the product {model}",
        field="snPrefixes",
        code="sn_prefix_taken",
    )


def too_many_versions(model: str, most: int) -> Conflict:
    """409: a product keeps its versions until it is deleted."""
    return Conflict(
        f"tsl.version: {model} has {most} versions, which is the most",
        field="tsl.version",
        code="too_many_tsl_versions",
    )
