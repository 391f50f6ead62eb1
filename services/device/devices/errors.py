"""Why an operation on a device is refused."""

from libs.common.errors import Conflict, InvalidInput


def device_exists(serial: str, field: str) -> Conflict:
    """409: the SN is a device already, whoever it belongs to."""
    return Conflict(
        f"{field}: {serial} is a device already", field=field, code="device_already_exists"
    )


def rps_record_exists(serial: str, field: str) -> Conflict:
    """409: the SN has an RPS record, which must be deleted first (Decision 9)."""
    return Conflict(
        f"{field}: {serial} has an RPS record; delete it first",
        field=field,
        code="rps_record_exists",
    )


def unknown_version(model: str, version: str) -> InvalidInput:
    """400: the product has no such TSL version."""
    return InvalidInput(
        f"tslVersion: the product {model} has no version {version}", field="tslVersion"
    )
