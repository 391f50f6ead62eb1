"""Imports of devices on the wire."""

from typing import Annotated, Literal

import msgspec
from litestar.datastructures import UploadFile

from libs.common.http import console
from services.device.registry.devices.schemas import CreateDevice, FindDevices, Part
from services.device.registry.imports.columns import CellFault
from services.device.registry.imports.sheet_writer import Format

State = Literal["RUNNING", "DONE", "REFUSED", "CANCELLED"]
WaitingFor = Literal["INTEGRATION", "EARLIER_IMPORT"]
Outcome = Literal["CREATED", "UPDATED", "FAILED"]


class TemplateOf(msgspec.Struct, kw_only=True):
    """Body of `POST /device-batch/template`."""

    integration: Part
    format: Format = "xlsx"


class SentSheet(msgspec.Struct, kw_only=True):
    """A sheet of devices of an integration: XLSX, or CSV as spreadsheet programs write it."""

    integration: Part
    file: UploadFile


class SentImport(SentSheet, kw_only=True):
    """AddDeviceForm of `POST /device-batch/import`.

    `only_good` adds the rows without a fault; else one fault in any row lets nothing be added.
    """

    only_good: bool = False


class SentErrors(SentSheet, kw_only=True):
    """AddDeviceForm of `POST /device-batch/fill-error`; `errors` is the JSON of `RowErrors`."""

    errors: str


class RowError(msgspec.Struct):
    """What is wrong with a row; rows count from 0."""

    id: Annotated[int, msgspec.Meta(ge=0)]
    msg: Annotated[str, msgspec.Meta(max_length=2000)]


class RowErrors(msgspec.Struct):
    """What is wrong with rows."""

    errors: Annotated[list[RowError], msgspec.Meta(max_length=10_000)]


class ParsedSheet(msgspec.Struct):
    """The rows of a sheet as bodies of `POST /device`, and their places, from 0."""

    create_device_requests: list[CreateDevice]
    row_id: list[int]


class ImportRef(msgspec.Struct):
    """An import that has begun."""

    import_id: str


class ShownImport(console.ResponseModel, kw_only=True):
    """How far an import is; times in ms.

    Of a REFUSED one nothing was added. `failed` counts rows with faults, which
    `POST /device-batch/import/{import_id}/errors` gives. `waiting_for` is why a RUNNING one does
    not go on: its integration is away, or another import of the tenant has not ended.
    """

    import_id: str
    integration: str
    user_id: str
    state: State
    waiting_for: WaitingFor | None = None
    total: int
    created: int
    updated: int
    failed: int
    created_at: int
    ended_at: int | None = None


class RowFaults(console.ResponseModel, kw_only=True):
    """What is wrong with a row of an import; rows count from 0."""

    row: int
    faults: list[CellFault]


class FindFaults(console.PageRequest, kw_only=True):
    """Body of `POST /device-batch/import/{import_id}/faults`."""

    largest = 1000


class FaultsFile(msgspec.Struct, kw_only=True):
    """Body of `POST /device-batch/import/{import_id}/errors`."""

    format: Format = "xlsx"


class FindKeys(console.PageRequest, kw_only=True):
    """Body of `POST /device-batch/import/{import_id}/keys`."""

    largest = 500


class FirstKey(console.ResponseModel, kw_only=True):
    """What a device logs in with; `key` is absent when it has been told before."""

    device_id: str
    sn: str
    key: str | None = None


class ExportDevices(FindDevices, kw_only=True):
    """Body of `POST /device-batch/export`: a search of devices of one integration."""

    integration: Part
    format: Format = "xlsx"
