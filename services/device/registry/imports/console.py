"""`/device-batch`: import and export of devices in sheets."""

from typing import Any

import msgspec
from litestar import Response
from litestar.di import NamedDependency
from litestar.params import JSONBody, MultipartBody

from libs.common.decoding import parse_validation_error
from libs.common.errors import InvalidInput
from libs.common.http import HttpRequest, RequestPrincipal, get_principal
from libs.common.http.console import Page, get, post
from libs.common.http.guards import allow_holders
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.identity.functions import Function
from services.device.registry.imports.schemas import (
    ExportDevices,
    FaultsFile,
    FindFaults,
    FindKeys,
    ImportProgress,
    ImportRef,
    InitialDeviceKey,
    ParsedSheet,
    RowErrors,
    RowFaults,
    SheetErrorsUpload,
    SheetTemplateRequest,
    SheetUpload,
    StartImport,
)
from services.device.registry.imports.service import ImportService
from services.device.registry.imports.sheet_writer import MEDIA_TYPE, SheetFormat
from services.device.registry.imports.sheets import SheetService

ADDERS = allow_holders(Function.DEVICE_ADD)

SheetServiceDependency = NamedDependency[SheetService]
ImportServiceDependency = NamedDependency[ImportService]


@post("/template", guards=[ADDERS], media_type=MEDIA_TYPE, summary="Get empty sheet for import")
async def make_device_sheet(
    request: HttpRequest, sheets: SheetServiceDependency, data: JSONBody[SheetTemplateRequest]
) -> Response[bytes]:
    """Return an empty sheet with the columns for devices of an integration."""
    made = await sheets.write_template(get_principal(request), data.integration, data.format)
    return _file_response(made, "Devices", data.format)


@post("/parse", guards=[ADDERS], waits=True)
async def parse_device_sheet(
    principal: RequestPrincipal, sheets: SheetServiceDependency, data: MultipartBody[SheetUpload]
) -> ParsedSheet:
    """Return the rows of a sheet as bodies of `POST /device`.

    No device is added. A sheet with more than 500 devices is rejected.
    """
    content = await data.file.read()
    return await sheets.parse_requests(principal, data.integration, content)


@post("/fill-error", guards=[ADDERS], media_type=MEDIA_TYPE, waits=True)
async def fill_device_errors(
    request: HttpRequest, sheets: SheetServiceDependency, data: MultipartBody[SheetErrorsUpload]
) -> Response[bytes]:
    """Return the rows that `errors` names, with its messages in a separate column."""
    try:
        errors = msgspec.json.decode(data.errors, type=RowErrors)
    except msgspec.ValidationError as error:
        fault = parse_validation_error(str(error))
        raise InvalidInput(fault.reason, field=fault.place or "errors") from error
    except msgspec.DecodeError as error:
        raise InvalidInput(f"is no JSON: {error}", field="errors") from error
    content = await data.file.read()
    made = await sheets.write_errors(get_principal(request), data.integration, content, errors)
    return _file_response(made, "Errors", "xlsx")


@post("/import", guards=[ADDERS], waits=True)
async def import_devices(
    principal: RequestPrincipal, imports: ImportServiceDependency, data: MultipartBody[StartImport]
) -> ImportRef:
    """Add the devices of a sheet; update devices that exist.

    Every row is checked before the first device is added. A sheet with more than 10,000 devices is
    rejected.
    """
    import_id = await imports.begin(
        principal,
        data.integration,
        await data.file.read(),
        only_good=data.only_good,
    )
    return ImportRef(str(import_id))


@get("/import", guards=[ADDERS])
async def list_imports(
    principal: RequestPrincipal, imports: ImportServiceDependency
) -> list[ImportProgress]:
    """List the imports of the last seven days, the newest first.

    At most 20 ended imports are kept.
    """
    return await imports.list_newest(principal)


@get("/import/{import_id:str}", guards=[ADDERS])
async def get_import(
    principal: RequestPrincipal, imports: ImportServiceDependency, import_id: PathId
) -> ImportProgress:
    """Return the progress of an import."""
    return await imports.get(principal, import_id)


@post("/import/{import_id:str}/cancel", guards=[ADDERS])
async def cancel_import(
    principal: RequestPrincipal, imports: ImportServiceDependency, import_id: PathId
) -> None:
    """Stop an import; devices that were added stay."""
    await imports.cancel(principal, import_id)


@post("/import/{import_id:str}/faults", guards=[ADDERS])
async def list_import_faults(
    principal: RequestPrincipal,
    imports: ImportServiceDependency,
    import_id: PathId,
    data: JSONBody[FindFaults | None] = None,
) -> Page[RowFaults]:
    """List the faults by row and column."""
    return await imports.find_faults(principal, import_id, data or FindFaults())


@post("/import/{import_id:str}/errors", guards=[ADDERS], media_type=MEDIA_TYPE)
async def get_import_errors(
    request: HttpRequest,
    imports: ImportServiceDependency,
    import_id: PathId,
    data: JSONBody[FaultsFile | None] = None,
) -> Response[bytes]:
    """Return the rows with faults as a sheet, to correct and import again."""
    file_format = (data or FaultsFile()).format
    return _file_response(
        await imports.write_error_sheet(get_principal(request), import_id, file_format),
        "Errors",
        file_format,
    )


@post("/import/{import_id:str}/keys", guards=[ADDERS])
async def get_import_keys(
    principal: RequestPrincipal,
    imports: ImportServiceDependency,
    import_id: PathId,
    data: JSONBody[FindKeys | None] = None,
) -> Page[InitialDeviceKey]:
    """Return the first keys of directly connected devices of an import.

    Only the user who imported them gets the keys, and each key once.
    """
    return await imports.issue_first_device_keys(principal, import_id, data or FindKeys())


@post("/export", guards=[allow_holders(Function.DEVICE_VIEW)], media_type=MEDIA_TYPE, waits=True)
async def export_devices(
    request: HttpRequest, sheets: SheetServiceDependency, data: JSONBody[ExportDevices]
) -> Response[bytes]:
    """Return the devices that match a search as a sheet, at most 100,000.

    It has the columns of an import.
    """
    return _file_response(await sheets.export(get_principal(request), data), "Devices", data.format)


def _file_response(content: bytes, name: str, file_format: SheetFormat) -> Response[bytes]:
    headers: dict[str, Any] = {"Content-Disposition": f"attachment; filename={name}.{file_format}"}
    return Response(content, media_type=MEDIA_TYPE, headers=headers)


ROUTER = route_operations(globals(), "/device-batch", tags=["Devices"])
