"""Errors of operations on devices and products."""

from libs.common.errors import Conflict, InvalidInput, NotFound


def device_exists_error(serial: str, field: str) -> Conflict:
    """Return 409: a device of any owner has this SN."""
    return Conflict(
        f"{field}: a device with the SN {serial} exists already",
        field=field,
        code="device_already_exists",
    )


def duplicated_eui_error(serial: str, field: str) -> Conflict:
    """Return 409 like `device_exists_error`, with the code that consoles have a text for."""
    return Conflict(
        f"{field}: a device with the SN {serial} exists already",
        field=field,
        code="duplicated_device_eui",
    )


def rps_record_exists(serial: str, field: str) -> Conflict:
    """Return 409: the SN has an RPS record, which must be deleted first."""
    return Conflict(
        f"{field}: {serial} has an RPS record; delete it first",
        field=field,
        code="rps_record_exists",
    )


def integration_device_error(integration: str) -> Conflict:
    """Return 409: users manage this device through its integration."""
    return Conflict(
        f"the device belongs to the integration {integration}: only users can manage it",
        field="deviceId",
        code="device_of_integration",
    )


def unknown_version_error(model: str, version: str) -> InvalidInput:
    """Return 400: the product has no such TSL version."""
    return InvalidInput(
        f"tslVersion: the product {model} has no version {version}", field="tslVersion"
    )


def unknown_model_error(model: str) -> InvalidInput:
    """Return 400: the tenant has no product of this model."""
    return InvalidInput(f"model: there is no product {model}", field="model")


def device_not_found(device_id: int) -> NotFound:
    """Return 404, also for devices of other applications, to hide their ids."""
    return NotFound(f"there is no device {device_id}", field="deviceId", code="device_not_found")


def product_not_found(model: str) -> NotFound:
    """Return 404: the tenant has no such product."""
    return NotFound(f"there is no product {model}", field="model", code="product_not_found")


def codec_not_found(model: str) -> NotFound:
    """Return 404: the product has no codec."""
    return NotFound(f"the product {model} has no codec", field="model", code="codec_not_found")


def built_in_product_error(model: str) -> Conflict:
    """Return 409: the product belongs to the platform."""
    return Conflict(
        f"the product {model} is built in and cannot be changed",
        field="model",
        code="product_built_in",
    )


def product_in_use_error(model: str) -> Conflict:
    """Return 409: devices have this product."""
    return Conflict(f"the product {model} still has devices", field="model", code="product_in_use")


def version_in_use_error(model: str, version: str) -> Conflict:
    """Return 409: devices use this version, so its content cannot change."""
    return Conflict(
        f"tsl.version: devices use version {version} of {model}; "
        "give the changed TSL another version",
        field="tsl.version",
        code="tsl_version_in_use",
    )


def prefix_taken_error(prefix: str, model: str) -> Conflict:
    """Return 409: another product has this SN prefix."""
    return Conflict(
        f"snPrefixes: {prefix} belongs to the product {model}",
        field="snPrefixes",
        code="sn_prefix_taken",
    )


def too_many_versions_error(model: str, maximum: int) -> Conflict:
    """Return 409: the product has as many TSL versions as allowed."""
    return Conflict(
        f"tsl.version: {model} has {maximum} versions, which is the most",
        field="tsl.version",
        code="too_many_tsl_versions",
    )
