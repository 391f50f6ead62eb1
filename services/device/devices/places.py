"""Reads where devices are, as consoles say it."""

import math

from libs.common.errors import InvalidInput
from services.device.devices.schemas import SentLocation
from services.device.members.values import ValueFault
from services.device.things.model import Location

NOT_BOTH = "device_location_latitude_and_longitude_not_both_provided"
BOUNDS = {"latitude": 90.0, "longitude": 180.0}
"""Degrees on either side of the equator and of the prime meridian (WGS 84)."""


def location_of(sent: SentLocation, field: str = "") -> Location | None:
    """The place, None when nothing is said; raise `InvalidInput` that names what is wrong.

    `field` is where it stands in the body, with a dot behind.
    """
    latitude = _degrees("latitude", sent.latitude, field)
    longitude = _degrees("longitude", sent.longitude, field)
    address = (sent.address or "").strip() or None
    if latitude is not None and longitude is not None:
        return Location(latitude, longitude, address)
    if latitude is not None or longitude is not None:
        raise InvalidInput(
            "latitude and longitude go together",
            field=field + ("longitude" if longitude is None else "latitude"),
            code=NOT_BOTH,
        )
    if address is not None:
        raise InvalidInput(
            "an address needs latitude and longitude",
            field=f"{field}address",
            code="device_location_setting_address_without_latitude_and_longitude",
        )
    return None


def _degrees(name: str, sent: float | str | None, field: str) -> float | None:
    if sent is None or sent == "":
        return None
    try:
        value = float(sent)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        text = f"{name} must be a number of degrees"
        raise _refused(field + name, ValueFault(f"device_location_{name}_type_error", text, {}))
    most = BOUNDS[name]
    if abs(value) > most:
        text = f"{name} must be from {-most:g} to {most:g}"
        args = {"entity_name": name, "value": value, "min": -most, "max": most}
        raise _refused(field + name, ValueFault("entity_value_out_of_range", text, args))
    return value


def _refused(field: str, fault: ValueFault) -> InvalidInput:
    return InvalidInput(fault.error_message, field=field, code="multiple_error", detail=[fault])
