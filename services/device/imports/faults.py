"""What is wrong with rows."""

from libs.common.errors import Conflict, ThingwayError
from services.device.imports.columns import (
    ADDRESS,
    GROUP,
    LATITUDE,
    LONGITUDE,
    NAME,
    CellFault,
)
from services.device.imports.store import Row
from services.device.members.values import ValueFault

_PLACES = {
    "name": NAME,
    "group_name": GROUP,
    "location.latitude": LATITUDE,
    "location.longitude": LONGITUDE,
    "location.address": ADDRESS,
}


def same_device(row: int) -> Conflict:
    """The error of a row whose device `row`, from 0, brings."""
    return Conflict(f"is the same device as row {row + 2}")


def fail(row: Row, error: ThingwayError) -> None:
    """The row adds no device, for this reason."""
    row.outcome, row.faults = "FAILED", faults_of(error)


def faults_of(error: ThingwayError) -> list[CellFault]:
    """What an error says of the cells of a row."""
    place = (error.field or "").removeprefix("param_entities.")
    column = _PLACES.get(place, place) or None
    if isinstance(error.detail, list):
        return [
            CellFault(
                column=fault.args.get("entity_key", column),
                error_code=fault.error_code,
                error_message=fault.error_message,
                args=fault.args,
            )
            for fault in error.detail
            if isinstance(fault, ValueFault)
        ]
    return [CellFault(column=column, error_code=error.code, error_message=error.message)]
