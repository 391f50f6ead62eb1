"""Imports of devices: begun by users, worked off by one replica, a row at a time or many abreast.

A row that is done says so in the transaction that counts it. A process that dies in between begins
again with the rows that do not: what they have brought already is found by its identifier.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial

import msgspec

from libs.common.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    ThingwayError,
    TooManyRequests,
    Unavailable,
)
from libs.common.http.console import Page
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from libs.common.things import DIRECT
from libs.common.wording import worded
from services.device.devices.adding import DeviceAdder, Form
from services.device.devices.bringing import Brought, DeviceBringer
from services.device.devices.keys import CredentialsOverRpc, issue_first_key
from services.device.devices.places import location_of
from services.device.devices.schemas import CreateDevice, SentLocation
from services.device.groups.store import GroupStore
from services.device.imports.columns import (
    ADDRESS,
    GROUP,
    LATITUDE,
    LONGITUDE,
    NAME,
    CellFault,
)
from services.device.imports.reading import ERROR, Sheet
from services.device.imports.schemas import (
    FindFaults,
    FindKeys,
    FirstKey,
    Outcome,
    RowFaults,
    ShownImport,
)
from services.device.imports.sheets import MOST_IMPORTED, Filled, Sheets
from services.device.imports.store import Import, ImportStore, Row
from services.device.imports.writing import Format, write
from services.device.members.values import ValueFault
from services.device.things.errors import device_is_taken
from services.device.things.model import Device, DeviceChanges
from services.device.things.serials import SERIAL, SerialTaken, key_of
from services.device.things.store import DeviceStore

log = logging.getLogger(__name__)

MOST_RUNNING = 3
"""Imports of a tenant that are under way at a time; they run one after the other."""
TENANTS = 4
"""Whose imports run at a time."""
CHUNK, ABREAST = 100, 16
"""Rows that are counted together, and rows that are worked on at a time."""
PAUSE = 0.5
PAUSES = (0.5, 1.0, 2.0)
"""Seconds until an integration that is away is asked once more."""
_PLACES = {
    "name": NAME,
    "group_name": GROUP,
    "location.latitude": LATITUDE,
    "location.longitude": LONGITUDE,
    "location.address": ADDRESS,
}


class Imports:
    """Imports on behalf of users."""

    def __init__(
        self,
        *,
        store: ImportStore,
        sheets: Sheets,
        adder: DeviceAdder,
        bringer: DeviceBringer,
        devices: DeviceStore,
        groups: GroupStore,
        grants: GrantReader,
        keys: CredentialsOverRpc,
    ) -> None:
        self._store = store
        self._sheets = sheets
        self._adder = adder
        self._bringer = bringer
        self._devices = devices
        self._groups = groups
        self._grants = grants
        self._keys = keys

    async def begin(
        self, principal: Principal, integration: str, data: bytes, *, only_good: bool
    ) -> int:
        """Check every row, and begin to add them; return the id of the import.

        With a fault in any row nothing is added, unless `only_good`. Raises as `Sheets.read`, and
        `TooManyRequests` while as many of the tenant are under way as may be.
        """
        async with self._sheets.turn(principal.tenant):
            if len(await self._store.running(principal.tenant)) >= MOST_RUNNING:
                text = f"{MOST_RUNNING} imports are under way"
                raise TooManyRequests(text, retry_after=10)
            filled = await self._sheets.read(principal, integration, data, MOST_IMPORTED)
            rows = [row async for row in _checked(filled)]
            await self._check_identifiers(principal.tenant, filled, rows)
            refused = not only_good and any(row.outcome for row in rows)
            keys = [column.key for column in filled.heads]
            return await self._store.add(principal, integration, keys, rows, refused=refused)

    async def _check_identifiers(self, tenant: str, filled: Filled, rows: Sequence[Row]) -> None:
        """Fail rows of the same device, and of one that is not the integration's, in advance.

        Only where the integration has said which input names a device.
        """
        form = filled.form
        if form.identifier is None:
            return
        named: dict[str, Row] = {}
        for row in rows:
            request, _ = filled.columns.request(filled.heads, row.cells)
            identifier = request.param_entities.get(form.parameters.key_of(form.identifier))
            if not isinstance(identifier, str) or row.outcome:
                continue
            first = named.setdefault(key_of(identifier), row)
            if not SERIAL.fullmatch(identifier):
                text = "must be 1 to 64 letters, digits, '_' or '-'"
                _fail(row, InvalidInput(text, field=form.parameters.key(form.identifier)))
            elif first is not row:
                _fail(row, _same_device(first.number))
        for device in await self._devices.with_serials(list(named)):
            if (device.tenant, device.integration) != (tenant, form.integration):
                field = form.parameters.key(form.identifier)
                _fail(named[device.sn_key], device_is_taken(device.sn, field))

    async def newest(self, principal: Principal) -> list[ShownImport]:
        """The imports of integrations that the user is granted, the newest first."""
        grants = await self._grants.of(principal)
        seen = None if grants.everything else grants.resources.integrations
        return await self._store.newest(principal.tenant, seen)

    async def get(self, principal: Principal, import_id: int) -> ShownImport:
        """How far an import is; raise `NotFound`."""
        await self._find(principal, import_id)
        return await self._store.shown(principal.tenant, import_id)

    async def cancel(self, principal: Principal, import_id: int) -> None:
        """Let an import end where it is; rows that are being added are still added."""
        await self._find(principal, import_id)
        await self._store.end(import_id, "CANCELLED")

    async def faults(
        self, principal: Principal, import_id: int, wanted: FindFaults
    ) -> Page[RowFaults]:
        """The rows with faults."""
        await self._find(principal, import_id)
        rows, total = await self._store.faults(import_id, wanted.skip, wanted.size)
        return Page(page_size=wanted.size, page_number=wanted.number, total=total, content=rows)

    async def errors(self, principal: Principal, import_id: int, form: Format) -> bytes:
        """The rows with faults as a sheet to be mended and sent again; what is wrong beside."""
        known = await self._find(principal, import_id)
        _, columns = await self._sheets.columns(principal, known.integration)
        heads = columns.of(Sheet(known.columns, []))
        titles = {column.key: column.title for column in heads}
        rows = [
            [*row.cells, "; ".join(_told(fault, titles) for fault in row.faults)]
            async for row in self._store.failed(import_id)
        ]
        return await asyncio.to_thread(write, form, heads, rows, ERROR)

    async def keys(self, principal: Principal, import_id: int, wanted: FindKeys) -> Page[FirstKey]:
        """The first keys of devices that connect themselves, each told once, to who added them.

        Raises `Forbidden` for everybody else, and for an import of another integration.
        """
        known = await self._find(principal, import_id)
        if known.user_id != principal.user_id or known.integration != DIRECT:
            raise Forbidden("keys are for who imported devices that connect themselves")
        found, total = await self._store.created(import_id, wanted.skip, wanted.size)
        devices = await self._devices.with_serials([key_of(one) for one in found])
        places = asyncio.Semaphore(ABREAST)

        async def first(device: Device) -> FirstKey:
            async with places:
                look = partial(self._there, device)
                key = await issue_first_key(self._keys, device, look)
            return FirstKey(device_id=str(device.id), sn=device.sn, key=key)

        own = [one for one in devices if one.tenant == known.tenant]
        rows = await asyncio.gather(*map(first, own))
        return Page(
            page_size=wanted.size, page_number=wanted.number, total=total, content=list(rows)
        )

    async def _there(self, device: Device) -> None:
        if await self._devices.find(device.tenant, device.id) is None:
            raise NotFound(f"device {device.id} not found")

    async def _find(self, principal: Principal, import_id: int) -> Import:
        known = await self._store.known(principal.tenant, import_id)
        if not (await self._grants.of(principal)).integration(known.integration):
            raise NotFound(f"there is no import {import_id}", field="import_id")
        return known

    async def run(self) -> None:
        """Work off imports for ever, of each tenant one at a time."""
        working: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                for tenant in [one for one, task in working.items() if task.done()]:
                    if (error := working.pop(tenant).exception()) is not None:
                        log.error("an import of %s goes on later", tenant, exc_info=error)
                for job in await self._store.running():
                    if job.tenant not in working and len(working) < TENANTS:
                        working[job.tenant] = asyncio.ensure_future(self._work(job))
                await asyncio.sleep(PAUSE)
        finally:
            for task in working.values():
                task.cancel()
            await asyncio.gather(*working.values(), return_exceptions=True)

    async def _work(self, job: Import) -> None:
        try:
            form, columns = await self._sheets.columns(job.principal, job.integration)
            heads = columns.of(Sheet(job.columns, []))
        except (Forbidden, InvalidInput, NotFound) as error:  # it would be so for ever
            log.warning("import %d ends: %s", job.id, error)
            await self._store.end(job.id, "CANCELLED")
            return
        taken = await self._store.identifiers(job.id)
        places = asyncio.Semaphore(ABREAST)

        async def prepare(row: Row) -> tuple[Row, Brought] | None:
            async with places:
                request, _ = columns.request(heads, row.cells)
                try:
                    wanted = await self._prepare(job.principal, form, request)
                    _claim(row, wanted.new.identifier, taken)
                except ThingwayError as error:
                    _fail(row, error)
                    return None
                return row, wanted

        while rows := await self._store.waiting(job.id, CHUNK):
            if not await self._store.is_running(job.id):
                return
            ready = await asyncio.gather(*map(prepare, rows))
            await self._write(job, form, [one for one in ready if one is not None])
            await self._store.settle(job.id, rows)
        await self._store.end(job.id, "DONE")

    async def _prepare(self, principal: Principal, form: Form, request: CreateDevice) -> Brought:
        for pause in PAUSES:
            try:
                return await self._adder.prepare(principal, form, request)
            except Unavailable:
                await asyncio.sleep(pause)
        return await self._adder.prepare(principal, form, request)

    async def _write(self, job: Import, form: Form, ready: Sequence[tuple[Row, Brought]]) -> None:
        """Write devices: new ones together, and each by itself when that fails."""
        keys = [key_of(wanted.new.identifier) for _, wanted in ready]
        known = {device.sn_key for device in await self._devices.with_serials(keys)}
        fresh = [one for key, one in zip(keys, ready, strict=True) if key not in known]
        try:
            made = await asyncio.gather(*(self._bringer.make(wanted) for _, wanted in fresh))
            if made:
                await self._bringer.add_all(made)
        except (ThingwayError, SerialTaken):
            fresh = []
        for row, _ in fresh:
            row.outcome = "CREATED"
        for row, wanted in ready:
            if row.outcome is None:
                await self._write_one(job, form, row, wanted)

    async def _write_one(self, job: Import, form: Form, row: Row, wanted: Brought) -> None:
        try:
            await self._adder.write(form, wanted)
            row.outcome = "CREATED"
        except Conflict as error:
            row.outcome = await self._change(job, wanted)
            if row.outcome is None:
                _fail(row, error)
        except ThingwayError as error:
            _fail(row, error)

    async def _change(self, job: Import, wanted: Brought) -> Outcome | None:
        """Give a device of the integration what its row says; None when it is not its device.

        Blank cells change nothing.
        """
        tenant = job.tenant
        identifier = wanted.new.identifier
        known = await self._devices.with_identifier(tenant, job.integration, identifier)
        if known is None:
            return None
        if known.created_at >= job.created_at and known.user_id == job.user_id:
            return "CREATED"  # by a process that died before it said so
        group = known.group if wanted.group is None else wanted.group
        location = known.location if wanted.location is None else wanted.location
        if (wanted.name, group, location) != (known.name, known.group, known.location):
            changes = DeviceChanges(name=wanted.name, group=group, location=location)
            join = None if group is None else partial(self._groups.join, tenant, group)
            await self._devices.change_each(tenant, [known.id], {}, lambda _: changes, join)
        return "UPDATED"


def _claim(row: Row, identifier: str, taken: dict[str, int]) -> None:
    """Note which row brings a device; raise `Conflict` when another one does."""
    other = taken.setdefault(identifier, row.number)
    if other != row.number:
        raise _same_device(other)
    row.identifier = identifier


def _same_device(row: int) -> Conflict:
    return Conflict(f"is the same device as row {row + 2}")


def _fail(row: Row, error: ThingwayError) -> None:
    row.outcome, row.faults = "FAILED", _faults(error)


async def _checked(filled: Filled) -> AsyncIterator[Row]:
    """The rows of a sheet, those with faults as failed; others are let in between."""
    for number, (at, cells) in enumerate(filled.sheet.rows):
        if number % CHUNK == 0:
            await asyncio.sleep(0)
        request, faults = filled.columns.request(filled.heads, cells)
        faults = faults or [*_wrong(filled.form, request)]
        yield Row(number=at, cells=cells, faults=faults, outcome="FAILED" if faults else None)


def _wrong(form: Form, request: CreateDevice) -> list[CellFault]:
    """What is wrong with a row before anybody is asked."""
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
        form.parameters.read(request.param_entities)
    except msgspec.ValidationError as error:
        found = worded(str(error))
        faults += _faults(InvalidInput(found.reason, field=found.place))
    except InvalidInput as error:
        faults += _faults(error)
    try:
        location_of(request.location or SentLocation(), "location.")
    except InvalidInput as error:
        faults += _faults(error)
    return faults


def _faults(error: ThingwayError) -> list[CellFault]:
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


def _told(fault: CellFault, titles: dict[str, str]) -> str:
    title = titles.get(fault.column or "")
    return f"{title}: {fault.error_message}" if title else fault.error_message
