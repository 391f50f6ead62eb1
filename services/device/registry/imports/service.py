"""Operations on imports of devices, and validation of their rows."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from libs.common.contracts.integrations import BUILT_IN_IDS
from libs.common.decoding import parse_validation_error
from libs.common.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    ThingwayError,
    TooManyRequests,
)
from libs.common.http.console import Page
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from libs.common.jobs import gather_limited
from libs.common.things import DIRECT_INTEGRATION
from services.device.members.device_keys import DeviceCredentialsClient
from services.device.members.values import ValueFault
from services.device.registry.devices.integration_devices import AddDeviceForm
from services.device.registry.devices.schemas import CreateDevice, LocationInput
from services.device.registry.devices.search import parse_location
from services.device.registry.imports.columns import (
    ADDRESS,
    GROUP,
    LATITUDE,
    LONGITUDE,
    MODEL_INPUT,
    NAME,
    CellFault,
)
from services.device.registry.imports.schemas import (
    FindFaults,
    FindKeys,
    ImportProgress,
    InitialDeviceKey,
    RowFaults,
)
from services.device.registry.imports.sheet_reader import ERROR_COLUMN, Sheet
from services.device.registry.imports.sheet_writer import SheetFormat
from services.device.registry.imports.sheets import MAX_IMPORTED, DeviceSheet, SheetService
from services.device.registry.imports.store import Import, ImportRow, ImportStore
from services.device.things.device_store import DeviceStore
from services.device.things.errors import duplicated_eui_error, rps_record_exists
from services.device.things.groups import GROUP_REQUEST_FIELD, MAX_GROUPS, too_many_groups_error
from services.device.things.model import Device
from services.device.things.serial_numbers import SERIAL_PATTERN, serial_key

_COLUMN_BY_FIELD = {
    "name": NAME,
    "group_name": GROUP,
    "location.latitude": LATITUDE,
    "location.longitude": LONGITUDE,
    "location.address": ADDRESS,
}


def same_device_conflict(row: int) -> Conflict:
    """Return the error of a row with the same device as `row` (from 0)."""
    return Conflict(f"is the same device as row {row + 2}")


def fail_row(row: ImportRow, error: ThingwayError) -> None:
    """Mark a row as failed with this error."""
    row.outcome, row.faults = "FAILED", cell_faults(error)


def cell_faults(error: ThingwayError) -> list[CellFault]:
    """Return the faults of cells that an error describes."""
    place = (error.field or "").removeprefix("param_entities.")
    column = _COLUMN_BY_FIELD.get(place, place) or None
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


MAX_RUNNING_IMPORTS = 3
"""Maximum running imports of a tenant, which are processed one after the other."""
RowRequests = list[tuple[ImportRow, CreateDevice]]
"""Rows with the request bodies that were built from them."""
ROWS_PER_ITERATION, CONCURRENT_KEYS = 100, 16
"""Rows that are checked before other tasks run, and keys that are requested concurrently."""


@dataclass(frozen=True, kw_only=True)
class ImportService:
    """Operations of users on imports."""

    store: ImportStore
    sheets: SheetService
    devices: DeviceStore
    grants: GrantReader
    credentials: DeviceCredentialsClient

    async def begin(
        self, principal: Principal, integration: str, data: bytes, *, only_good: bool
    ) -> int:
        """Check every row and start to add the devices; return the id of the import.

        With a fault in any row nothing is added, unless `only_good`. Raises as
        `SheetService.read_device_sheet` and, if `MAX_RUNNING_IMPORTS` imports of the tenant are
        running, `TooManyRequests`.
        """
        async with self.sheets.readers.slot(principal.tenant, size=len(data)):
            if len(await self.store.list_running(principal.tenant)) >= MAX_RUNNING_IMPORTS:
                text = f"{MAX_RUNNING_IMPORTS} imports are under way"
                raise TooManyRequests(text, retry_after=10)
            device_sheet = await self.sheets.read_device_sheet(
                principal, integration, data, MAX_IMPORTED
            )
            rows = [row async for row in _validate_rows(device_sheet)]
            await self._fail_conflicting_rows(principal.tenant, device_sheet, rows)
            rejected = not only_good and any(row.outcome for row in rows)
            keys = [column.key for column in device_sheet.heads]
            return await self.store.insert(principal, integration, keys, rows, rejected=rejected)

    async def _fail_conflicting_rows(
        self, tenant: str, device_sheet: DeviceSheet, rows: Sequence[ImportRow]
    ) -> None:
        """Fail rows that conflict with other rows or with stored devices."""
        requests = [
            (row, device_sheet.columns.build_request(device_sheet.heads, row.cells)[0])
            for row in rows
            if not row.outcome
        ]
        await self._fail_invalid_identifiers(tenant, device_sheet.form, requests)
        await self._fail_unknown_models(tenant, device_sheet.form, _filter_valid(requests))
        await self._fail_excess_groups(tenant, _filter_valid(requests))

    async def _fail_invalid_identifiers(
        self, tenant: str, form: AddDeviceForm, requests: RowRequests
    ) -> None:
        """Fail rows with duplicate, invalid or used identifiers, or beyond the limit of devices.

        Do nothing for an integration that does not name the input with the identifier.
        """
        if form.identifier is None:
            return
        field = form.parameters.field_path(form.identifier)
        rows_by_identifier: dict[str, ImportRow] = {}
        for row, request in requests:
            identifier = request.param_entities.get(form.parameters.entity_key(form.identifier))
            if not isinstance(identifier, str):
                continue
            first = rows_by_identifier.setdefault(serial_key(identifier), row)
            if not SERIAL_PATTERN.fullmatch(identifier):
                text = "must be 1 to 64 letters, digits, '_' or '-'"
                fail_row(row, form.parameters.input_error(form.identifier, text))
            elif first is not row:
                fail_row(row, same_device_conflict(first.number))
        stored = await self.devices.find_by_serials(list(rows_by_identifier))
        for device in stored:
            if (device.tenant, device.integration) != (tenant, form.integration):
                fail_row(rows_by_identifier[device.sn_key], duplicated_eui_error(device.sn, field))
        for serial in await self.devices.filter_rps_serials(list(rows_by_identifier)):
            fail_row(rows_by_identifier[serial], rps_record_exists(serial, field))
        stored_keys = {device.sn_key for device in stored}
        new = [
            row
            for key, row in rows_by_identifier.items()
            if key not in stored_keys and not row.outcome
        ]
        too_many, error = await self.devices.count_beyond_limit(tenant, len(new))
        for row in new[len(new) - too_many :]:
            fail_row(row, error)

    async def _fail_unknown_models(
        self, tenant: str, form: AddDeviceForm, requests: RowRequests
    ) -> None:
        """Fail rows with a model that has neither a product nor a valid template in the tenant.

        Only for built-in integrations: other integrations may add their own models.
        """
        if form.integration not in BUILT_IN_IDS or not form.parameters.has_input(MODEL_INPUT):
            return
        key = form.parameters.entity_key(MODEL_INPUT)
        models = [
            (row, model) for row, request in requests if (model := request.param_entities.get(key))
        ]
        available_models = await self.sheets.templates.filter_available_models(
            tenant, {str(model) for _, model in models}
        )
        for row, model in models:
            if model not in available_models:
                fail_row(
                    row, form.parameters.input_error(MODEL_INPUT, f"there is no product {model}")
                )

    async def _fail_excess_groups(self, tenant: str, requests: RowRequests) -> None:
        """Fail rows whose groups would exceed the tenant's limit."""
        names = [
            (row, name) for row, request in requests if (name := (request.group_name or "").strip())
        ]
        excess_names = await self.sheets.groups.find_beyond_limit(
            tenant, [name for _, name in names]
        )
        for row, name in names:
            if name in excess_names:
                fail_row(row, too_many_groups_error(MAX_GROUPS, GROUP_REQUEST_FIELD))

    async def list_newest(self, principal: Principal) -> list[ImportProgress]:
        """Return the imports of granted integrations, the newest first."""
        grants = await self.grants.read(principal)
        integrations = None if grants.everything else grants.resources.integrations
        return await self.store.list_newest(principal.tenant, integrations)

    async def get(self, principal: Principal, import_id: int) -> ImportProgress:
        """Return the progress of an import; raise `NotFound`."""
        await self._find(principal, import_id)
        return await self.store.find_progress(principal.tenant, import_id)

    async def cancel(self, principal: Principal, import_id: int) -> None:
        """Stop an import; rows that are being processed are completed."""
        await self._find(principal, import_id)
        await self.store.end_import(import_id, "CANCELLED")

    async def find_faults(
        self, principal: Principal, import_id: int, request: FindFaults
    ) -> Page[RowFaults]:
        """Return a page of the rows with faults."""
        await self._find(principal, import_id)
        rows, total = await self.store.find_faults(import_id, request.skip, request.size)
        return Page(page_size=request.size, page_number=request.number, total=total, content=rows)

    async def write_error_sheet(
        self, principal: Principal, import_id: int, file_format: SheetFormat
    ) -> bytes:
        """Return the rows with faults as a sheet, with the faults in a separate column."""
        job = await self._find(principal, import_id)
        _, columns = await self.sheets.load_columns(principal, job.integration)
        heads = columns.match_columns(Sheet(job.columns, []))
        titles = {column.key: column.title for column in heads}
        rows = [
            [*row.cells, "; ".join(_fault_text(fault, titles) for fault in row.faults)]
            async for row in self.store.iterate_failed_rows(import_id)
        ]
        return await self.sheets.write_in_slot(job.tenant, file_format, heads, rows, ERROR_COLUMN)

    async def issue_first_device_keys(
        self, principal: Principal, import_id: int, request: FindKeys
    ) -> Page[InitialDeviceKey]:
        """Return first keys of directly connected devices, each once, to their importer.

        Raises `Forbidden` for other users, and for an import of another integration.
        """
        job = await self._find(principal, import_id)
        if job.user_id != principal.user_id or job.integration != DIRECT_INTEGRATION:
            raise Forbidden("only the user who imported directly connected devices gets their keys")
        found, total = await self.store.find_created_identifiers(
            import_id, request.skip, request.size
        )
        devices = await self.devices.find_by_serials([serial_key(sn) for sn in found])

        async def issue_first_key(device: Device) -> InitialDeviceKey:
            check_exists = partial(self._check_exists, device)
            key = await self.credentials.issue_first(device, check_exists)
            return InitialDeviceKey(device_id=str(device.id), sn=device.sn, key=key)

        keys = (
            partial(issue_first_key, device) for device in devices if device.tenant == job.tenant
        )
        rows = await gather_limited(CONCURRENT_KEYS, keys)
        return Page(page_size=request.size, page_number=request.number, total=total, content=rows)

    async def _check_exists(self, device: Device) -> None:
        if await self.devices.find(device.tenant, device.id) is None:
            raise NotFound(f"device {device.id} not found")

    async def _find(self, principal: Principal, import_id: int) -> Import:
        job = await self.store.find(principal.tenant, import_id)
        if not (await self.grants.read(principal)).allows_integration(job.integration):
            raise NotFound(f"there is no import {import_id}", field="import_id")
        return job


def _filter_valid(requests: RowRequests) -> RowRequests:
    return [(row, request) for row, request in requests if not row.outcome]


async def _validate_rows(device_sheet: DeviceSheet) -> AsyncIterator[ImportRow]:
    """Yield the rows of a sheet, those with faults as failed."""
    for number, (at, cells) in enumerate(device_sheet.sheet.rows):
        if number % ROWS_PER_ITERATION == 0:
            await asyncio.sleep(0)
        request, faults = device_sheet.columns.build_request(device_sheet.heads, cells)
        faults = faults or [*_find_faults(device_sheet.form, request)]
        yield ImportRow(number=at, cells=cells, faults=faults, outcome="FAILED" if faults else None)


def _find_faults(form: AddDeviceForm, request: CreateDevice) -> list[CellFault]:
    """Return the faults of a row that need no other data."""
    faults = []
    if not request.name.strip():
        faults.append(
            CellFault(
                column=NAME,
                error_code="parameter_must_not_be_blank",
                error_message="must not be blank",
                args={"field": "name"},
            )
        )
    try:
        msgspec.convert(msgspec.to_builtins(request), CreateDevice)
        form.parameters.parse_inputs(request.param_entities)
    except msgspec.ValidationError as error:
        fault = parse_validation_error(str(error))
        faults += cell_faults(InvalidInput(fault.reason, field=fault.place))
    except InvalidInput as error:
        faults += cell_faults(error)
    try:
        parse_location(request.location or LocationInput(), "location.")
    except InvalidInput as error:
        faults += cell_faults(error)
    return faults


def _fault_text(fault: CellFault, titles: dict[str, str]) -> str:
    title = titles.get(fault.column or "")
    return f"{title}: {fault.error_message}" if title else fault.error_message
