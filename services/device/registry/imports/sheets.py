"""Sheets of devices on behalf of users: templates, parsing and export."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.common.errors import InvalidInput, TooLarge
from libs.common.identity import Principal
from libs.common.scheduling import FairScheduler
from services.device.registry.devices.console_service import UserDevices
from services.device.registry.devices.integration_devices import AddDeviceForm, DeviceAdder
from services.device.registry.imports.columns import (
    ADDRESS,
    GROUP,
    LATITUDE,
    LONGITUDE,
    MODEL_INPUT,
    NAME,
    CellFault,
    Column,
    SheetColumns,
    structure_error,
)
from services.device.registry.imports.schemas import ExportDevices, ParsedSheet, RowErrors
from services.device.registry.imports.sheet_reader import (
    ERROR_COLUMN,
    Sheet,
    SheetUnreadable,
    read_sheet,
)
from services.device.registry.imports.sheet_writer import SheetFormat, write_sheet
from services.device.registry.products.templates import TemplateService
from services.device.things.groups import GroupStore
from services.device.things.model import Device

MAX_PARSED, MAX_IMPORTED, MAX_EXPORTED = 500, 10_000, 100_000
"""Maximum rows of a sheet that is parsed, imported or exported."""
MAX_FILE_BYTES = 5 * 1024 * 1024
"""Maximum bytes of an uploaded sheet."""
READERS, EXPORTS = 2, 2
"""Files that a process reads, and writes, at the same time, because each is in memory."""
MAX_WAITING_BYTES_PER_TENANT = 32 * 1024 * 1024
"""Maximum bytes of a tenant's files that wait to be read."""
MAX_OFFERED_MODELS = 1000
DEVICES_PER_PAGE = 1000
"""Devices that an export reads at a time."""


@dataclass(frozen=True, slots=True)
class DeviceSheet:
    """A sheet that was read, with its form and columns."""

    form: AddDeviceForm
    columns: SheetColumns
    heads: list[Column]
    sheet: Sheet


@dataclass(frozen=True)
class SheetService:
    """Sheets of the devices of one integration."""

    adder: DeviceAdder
    templates: TemplateService
    groups: GroupStore
    devices: UserDevices
    readers: FairScheduler = field(
        default_factory=lambda: FairScheduler("sheets", READERS, size=MAX_WAITING_BYTES_PER_TENANT),
        init=False,
    )
    _exports: FairScheduler = field(
        default_factory=lambda: FairScheduler("exports of devices", EXPORTS), init=False
    )

    async def load_columns(
        self, principal: Principal, integration: str
    ) -> tuple[AddDeviceForm, SheetColumns]:
        """Return form and columns of an integration; raise like `DeviceAdder.find_form`."""
        tenant = principal.tenant
        form = await self.adder.find_form(principal, integration)
        models = await self.templates.list_labels(tenant, MAX_OFFERED_MODELS)
        groups = await self.groups.list_names(tenant)
        columns = SheetColumns(integration, form.parameters, models=models, groups=groups)
        return form, columns

    async def write_template(
        self, principal: Principal, integration: str, file_format: SheetFormat
    ) -> bytes:
        """Return an empty sheet."""
        _, columns = await self.load_columns(principal, integration)
        return await self.write_in_slot(principal.tenant, file_format, columns.all, [])

    async def read_device_sheet(
        self, principal: Principal, integration: str, data: bytes, maximum: int
    ) -> DeviceSheet:
        """Return the sheet in a file.

        Raises `InvalidInput` or `TooLarge`, and like `DeviceAdder.find_form`.
        """
        if len(data) > MAX_FILE_BYTES:
            raise TooLarge(f"a sheet may have at most {MAX_FILE_BYTES} bytes", field="file")
        form, columns = await self.load_columns(principal, integration)
        try:
            sheet = await read_sheet(data, columns.lower_case_names, maximum)
        except SheetUnreadable as error:
            raise structure_error(str(error)) from error
        heads = columns.match_columns(sheet)
        if sheet.decimal_comma:
            sheet.rows = [
                (at, columns.use_decimal_points(heads, cells)) for at, cells in sheet.rows
            ]
        if not sheet.rows:
            text = "contains no device"
            raise InvalidInput(text, field="file", code="device_list_sheet_no_device")
        if sheet.total > maximum:
            raise InvalidInput(
                f"must have at most {maximum} devices. It has {sheet.total}",
                field="file",
                code="device_list_sheet_device_over_limitation",
                detail={"limitation": maximum, "detected": sheet.total},
            )
        return DeviceSheet(form, columns, heads, sheet)

    async def parse_requests(
        self, principal: Principal, integration: str, data: bytes
    ) -> ParsedSheet:
        """Return the rows as bodies of `POST /device`.

        Raises `InvalidInput` for cells of a wrong type: its message describes the first, its detail
        all.
        """
        async with self.readers.slot(principal.tenant, size=len(data)):
            device_sheet = await self.read_device_sheet(principal, integration, data, MAX_PARSED)
        requests, wrong = [], []
        for at, cells in device_sheet.sheet.rows:
            request, faults = device_sheet.columns.build_request(device_sheet.heads, cells)
            requests.append(request)
            wrong += [(at, fault) for fault in faults]
        if wrong:
            raise _cells_error(wrong)
        return ParsedSheet(requests, [at for at, _ in device_sheet.sheet.rows])

    async def write_errors(
        self, principal: Principal, integration: str, data: bytes, errors: RowErrors
    ) -> bytes:
        """Return a sheet with the rows that `errors` names, and their messages in a last column."""
        async with self.readers.slot(principal.tenant, size=len(data)):
            device_sheet = await self.read_device_sheet(principal, integration, data, MAX_IMPORTED)
        texts = {error.id: error.msg for error in errors.errors}
        rows = [[*cells, texts[at]] for at, cells in device_sheet.sheet.rows if at in texts]
        return await self.write_in_slot(
            principal.tenant, "xlsx", device_sheet.heads, rows, ERROR_COLUMN
        )

    async def write_in_slot(self, tenant: str, *sheet: Any) -> bytes:
        """Return a sheet like `sheet_writer.write_sheet`, after waiting for a slot."""
        async with self._exports.slot(tenant):
            return await asyncio.to_thread(write_sheet, *sheet)

    async def export(self, principal: Principal, request: ExportDevices) -> bytes:
        """Return devices that match a search as a sheet, at most `MAX_EXPORTED`."""
        async with self._exports.slot(principal.tenant):
            return await self._export(principal, request)

    async def _export(self, principal: Principal, request: ExportDevices) -> bytes:
        form, columns = await self.load_columns(principal, request.integration)
        keys = {key: name for name, key, _ in form.parameters.list_inputs()}
        rows: list[list[Any]] = []
        request.page_size, request.page_number = DEVICES_PER_PAGE, 1
        while len(rows) < MAX_EXPORTED:
            page, _ = await self.devices.find(principal, request)
            devices = [device async for device in page]
            groups = await self.devices.find_group_names(principal, devices)
            rows += [_export_row(form, columns.all, keys, device, groups) for device in devices]
            if len(devices) < DEVICES_PER_PAGE:
                break
            request.page_number += 1
        return await asyncio.to_thread(write_sheet, request.format, columns.all, rows)


def _cells_error(wrong: Sequence[tuple[int, CellFault]]) -> InvalidInput:
    at, first = wrong[0]
    return InvalidInput(
        f"row {at + 2}: {first.error_message}",
        field="file",
        code=first.error_code,
        detail=first.args
        | {"row": at, "faults": [{"row": row, **fault.args} for row, fault in wrong]},
    )


def _export_row(
    form: AddDeviceForm,
    columns: Sequence[Column],
    inputs: Mapping[str, str],
    device: Device,
    groups: Mapping[int, str],
) -> list[Any]:
    place = device.location
    values = {
        NAME: device.name,
        GROUP: None if device.group is None else groups.get(device.group),
        LATITUDE: None if place is None else place.latitude,
        LONGITUDE: None if place is None else place.longitude,
        ADDRESS: None if place is None else place.address,
    }
    for key, name in inputs.items():
        if name == form.identifier:
            values[key] = device.identifier
        elif name == MODEL_INPUT:
            values[key] = device.model
        else:
            values[key] = (device.additional or {}).get(name)
    return [values[column.key] for column in columns]
