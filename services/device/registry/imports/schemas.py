"""Imports of devices on the wire."""

from typing import Annotated, Literal

import msgspec
from litestar.datastructures import UploadFile

from libs.common.http import console
from services.device.registry.devices.schemas import CreateDevice, FindDevices, SearchText
from services.device.registry.imports.columns import CellFault
from services.device.registry.imports.sheet_writer import SheetFormat

ImportState = Literal["RUNNING", "DONE", "REFUSED", "CANCELLED"]
WaitingFor = Literal["INTEGRATION", "EARLIER_IMPORT"]
RowOutcome = Literal["CREATED", "UPDATED", "FAILED"]


class SheetTemplateRequest(msgspec.Struct, kw_only=True):
    """Body of `POST /device-batch/template`."""

    integration: SearchText
    format: SheetFormat = "xlsx"


class SheetUpload(msgspec.Struct, kw_only=True):
    """A sheet of devices of an integration, as XLSX or CSV."""

    integration: SearchText
    file: UploadFile


class StartImport(SheetUpload, kw_only=True):
    """Form of `POST /device-batch/import`.

    With `only_good` the rows without faults are added; otherwise one fault prevents the import.
    """

    only_good: bool = False
    """Whether to add the rows without faults if other rows have faults."""


class SheetErrorsUpload(SheetUpload, kw_only=True):
    """Form of `POST /device-batch/fill-error`; `errors` is the JSON of `RowErrors`."""

    errors: str
    """JSON text with the errors by row."""


class RowError(msgspec.Struct):
    """The fault of a row; rows count from 0."""

    id: Annotated[int, msgspec.Meta(ge=0)]
    msg: Annotated[str, msgspec.Meta(max_length=2000)]


class RowErrors(msgspec.Struct):
    """Faults of rows."""

    errors: Annotated[list[RowError], msgspec.Meta(max_length=10_000)]


class ParsedSheet(msgspec.Struct):
    """The rows of a sheet as bodies of `POST /device`, with their positions from 0."""

    create_device_requests: list[CreateDevice]
    """One body of `POST /device` for each row."""
    row_id: list[int]
    """Row of each body, from 0."""


class ImportRef(msgspec.Struct):
    """The id of a started import."""

    import_id: str


class ImportProgress(console.ResponseModel, kw_only=True):
    """The progress of an import; times in ms.

    A REFUSED import adds nothing. `failed` counts rows with faults, which `POST
    /device-batch/import/{import_id}/errors` returns. `waiting_for` is the reason why a RUNNING
    import does not progress: its integration is not running, or it waits for an earlier import.
    """

    import_id: str
    integration: str
    user_id: str
    state: ImportState
    """`RUNNING`, `DONE`, `REFUSED` (nothing was added) or `CANCELLED`."""
    waiting_for: WaitingFor | None = None
    """Reason why a running import waits."""
    total: int
    """Number of rows."""
    created: int
    """Number of added devices."""
    updated: int
    """Number of rows whose device existed; the device was changed if its row differed."""
    failed: int
    """Number of rows with faults."""
    created_at: int
    ended_at: int | None = None


class RowFaults(console.ResponseModel, kw_only=True):
    """The faults of a row of an import; rows count from 0."""

    row: int
    """Number of the row, from 0."""
    faults: list[CellFault]


class FindFaults(console.PageRequest, kw_only=True):
    """Body of `POST /device-batch/import/{import_id}/faults`."""

    largest = 1000


class FaultsFile(msgspec.Struct, kw_only=True):
    """Body of `POST /device-batch/import/{import_id}/errors`."""

    format: SheetFormat = "xlsx"


class FindKeys(console.PageRequest, kw_only=True):
    """Body of `POST /device-batch/import/{import_id}/keys`."""

    largest = 500


class InitialDeviceKey(console.ResponseModel, kw_only=True):
    """The key of a device; absent if it was returned before."""

    device_id: str
    sn: str
    key: str | None = None
    """Device key: the password for MQTT, NATS and HTTP."""


class ExportDevices(FindDevices, kw_only=True):
    """Body of `POST /device-batch/export`: a search of devices of one integration."""

    integration: SearchText
    format: SheetFormat = "xlsx"
