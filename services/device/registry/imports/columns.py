"""Columns of a sheet of devices, and the conversion of their cells. No I/O."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from libs.common.errors import InvalidInput
from libs.common.things import ValueType
from services.device.members.values import UnreadableValue, convert_value
from services.device.registry.devices.integration_devices import AddDeviceParameters
from services.device.registry.devices.schemas import CreateDevice, LocationInput
from services.device.registry.imports.sheet_reader import Sheet, normalize_title

NAME, GROUP = "name", "device-group"
LATITUDE, LONGITUDE, ADDRESS = "location-latitude", "location-longitude", "location-address"
_DIGIT_SEPARATORS = r"[.'\u2019\s]"
_match_decimal_comma = re.compile(
    rf"[+-]?(\d+|\d{{1,3}}({_DIGIT_SEPARATORS}\d{{3}})+),\d+"
).fullmatch
"""Matches a number in the format of spreadsheets with a decimal comma: `1.234,5`."""
_match_shortened = re.compile(r"[+-]?\d+([.,]\d+)?[eE]\+\d+").fullmatch
"""Matches a long number in the CSV format of spreadsheet programs: `1,23457E+15`."""
FIRST_SHORTENED_NUMBER = 10**15
"""The first number with 16 digits: spreadsheet programs replace digits after the 15th by zeros."""
MODEL_INPUT = "model"
"""The input whose choices are the tenant's products."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column and its accepted values."""

    key: str
    """`NAME`, `GROUP`, `LATITUDE`, `LONGITUDE`, `ADDRESS`, or the key of an input's entity."""
    title: str
    kind: ValueType = "STRING"
    required: bool = False
    choices: dict[str, str] = {}
    """Values by the label in a drop-down; other values are rejected unless `free`."""
    free: bool = False
    bounds: tuple[float, float] | None = None


class CellFault(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A fault of a row, in one of its columns or as a whole."""

    column: str | None = None
    """`name`, `device-group`, `location-latitude`, ..., or the entity key of an input.

    Absent if the whole row is at fault.
    """
    error_code: str
    error_message: str
    args: dict[str, Any] = {}
    """Details for a translated message, such as `min` and `max`."""


class SheetColumns:
    """The columns of one integration for one tenant.

    `models` are the labels of the tenant's products by model.
    """

    def __init__(
        self,
        integration: str,
        parameters: AddDeviceParameters,
        *,
        models: Mapping[str, str] = MappingProxyType({}),
        groups: Iterable[str] = (),
    ) -> None:
        self.integration = integration
        inputs = [
            Column(
                key=key,
                title=member.name,
                kind=member.value_type,
                required=not member.attribute.get("optional"),
                choices={
                    label: value
                    for value, label in (
                        models if name == MODEL_INPUT else member.attribute.get("enum", {})
                    ).items()
                },
                free=name == MODEL_INPUT,
                bounds=_read_bounds(member.attribute),
            )
            for name, key, member in parameters.list_inputs()
        ]
        self.all = [
            Column(key=NAME, title="Name", required=True),
            *sorted(inputs, key=lambda column: not column.required),
            Column(
                key=GROUP,
                title="Device Group",
                choices={group: group for group in groups},
                free=True,
            ),
            Column(key=LATITUDE, title="Latitude", kind="DOUBLE", bounds=(-90, 90)),
            Column(key=LONGITUDE, title="Longitude", kind="DOUBLE", bounds=(-180, 180)),
            Column(key=ADDRESS, title="Address"),
        ]
        self._by_name = {column.title.casefold(): column for column in self.all}
        self._by_name |= {column.key.casefold(): column for column in self.all}

    def match_columns(self, sheet: Sheet) -> list[Column]:
        """Return the columns of a sheet in its order.

        Raises `InvalidInput` when column `Name` is missing, and for an unknown or duplicate column.
        """
        matched = []
        for head in sheet.columns:
            column = self._by_name.get(normalize_title(head))
            if column is None:
                raise self._columns_error(f"there is no column {head[:64]!r}", sheet)
            if column in matched:
                raise self._columns_error(f"the column {head[:64]!r} is duplicate", sheet)
            matched.append(column)
        if self.all[0] not in matched:
            raise self._columns_error("the column Name is missing", sheet)
        return matched

    def _columns_error(self, text: str, sheet: Sheet) -> InvalidInput:
        titles = ", ".join(column.title for column in self.all)
        read = f" (read as {sheet.source})" if sheet.source else ""
        return structure_error(f"{text}{read}; the columns are {titles}")

    @property
    def lower_case_names(self) -> Collection[str]:
        """Return the titles and keys of all columns, in lower case."""
        return self._by_name

    def use_decimal_points(self, columns: Sequence[Column], cells: Sequence[Any]) -> list[Any]:
        """Return the cells of a row, with decimal commas of numbers replaced by points."""
        return [
            _use_decimal_point(cell) if column.kind in ("LONG", "DOUBLE") else cell
            for column, cell in zip(columns, cells, strict=True)
        ]

    def build_request(
        self, columns: Sequence[Column], cells: Sequence[Any]
    ) -> tuple[CreateDevice, list[CellFault]]:
        """Return the body of `POST /device` for a row, and the faults of its cells."""
        values: dict[str, Any] = {}
        faults = []
        for column, cell in zip(columns, cells, strict=True):
            if cell is None:
                continue
            value = _convert_cell(column, cell)
            if isinstance(value, UnreadableValue):
                faults.append(_type_fault(column, _expected_values(column)))
            elif column.kind == "STRING" and _is_shortened(cell):
                faults.append(
                    _type_fault(column, "text: the spreadsheet program cut off its digits")
                )
            else:
                values[column.key] = value
        place = [values.pop(key, None) for key in (LATITUDE, LONGITUDE, ADDRESS)]
        request = CreateDevice(
            name=values.pop(NAME, ""),
            integration=self.integration,
            group_name=values.pop(GROUP, None),
            location=LocationInput(latitude=place[0], longitude=place[1], address=place[2])
            if any(part is not None for part in place)
            else None,
            param_entities=values,
        )
        return request, faults


def structure_error(text: str) -> InvalidInput:
    """Return the error 400 for a file that is no sheet of the integration's devices."""
    return InvalidInput(text, field="file", code="device_list_sheet_structure_error")


def _use_decimal_point(cell: Any) -> Any:
    if not isinstance(cell, str) or not _match_decimal_comma(cell):
        return cell
    whole, _, fraction = cell.partition(",")
    return f"{re.sub(_DIGIT_SEPARATORS, '', whole)}.{fraction}"


def _read_bounds(attribute: dict[str, Any]) -> tuple[float, float] | None:
    """Return minimum and maximum of a property, or None if it does not have both."""
    if "min" in attribute and "max" in attribute:
        return float(attribute["min"]), float(attribute["max"])
    return None


def _convert_cell(column: Column, cell: Any) -> Any:
    """Return the value of a cell, or `UnreadableValue`; a label gives its value."""
    if column.choices:
        label = convert_value("STRING", cell)
        if label in column.choices:
            return column.choices[label]
        if not column.free and label not in column.choices.values():
            return UnreadableValue(cell)
    return convert_value(column.kind, cell)


def _is_shortened(cell: Any) -> bool:
    """Return whether a spreadsheet program converted text to a number and cut digits."""
    if isinstance(cell, str):
        return _match_shortened(cell) is not None
    return type(cell) in (int, float) and abs(cell) >= FIRST_SHORTENED_NUMBER


def _expected_values(column: Column) -> str:
    return column.kind if column.free or not column.choices else ", ".join(column.choices)


def _type_fault(column: Column, expected: str) -> CellFault:
    return CellFault(
        column=column.key,
        error_code="device_list_sheet_parsing_value_error",
        error_message=f"{column.title} must be {expected[:200]}",
        args={
            "entity_key": column.key,
            "entity_name": column.title,
            "expected_type": expected[:200],
        },
    )
