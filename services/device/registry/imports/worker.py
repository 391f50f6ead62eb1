"""Runs imports in one replica, many rows at a time, taking turns between tenants.

A row is marked as done in the transaction that counts it. After a crash the import continues with
the other rows; devices that they already added are recognized by their identifiers.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from libs.common.bus import NoResponders
from libs.common.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    ThingwayError,
    Unavailable,
)
from libs.common.identity import Principal
from libs.common.jobs import gather_limited
from libs.common.lru_cache import LruCache
from libs.common.scheduling.turns import TenantSteps, take_turns
from services.device.registry.devices.integration_devices import (
    AddDeviceForm,
    DeviceAdder,
    DeviceDraft,
    IntegrationDeviceWriter,
)
from services.device.registry.devices.schemas import CreateDevice
from services.device.registry.imports.schemas import RowOutcome
from services.device.registry.imports.service import fail_row, same_device_conflict
from services.device.registry.imports.sheet_reader import Sheet
from services.device.registry.imports.sheets import SheetService
from services.device.registry.imports.store import IMPORTS_TOPIC, Import, ImportRow, ImportStore
from services.device.things.device_store import DeviceStore
from services.device.things.groups import GroupStore
from services.device.things.model import DeviceChanges
from services.device.things.serial_numbers import SerialTaken, serial_key

log = logging.getLogger(__name__)

CONCURRENT_TENANTS = 8
"""Tenants whose imports have a turn concurrently."""
TURN_SECONDS = 5.0
"""Seconds of a turn in which rows are started; the last ones may take longer."""
ROWS_PER_READ, CONCURRENT_ROWS = 100, 16
"""Rows that are counted together, and rows that are processed concurrently."""
QUERY_INTERVAL_SECONDS = 0.5
"""Seconds until new imports are noticed."""
RETRY_DELAYS_SECONDS = (0.5, 1.0, 2.0)
"""Seconds before each repeated call of an unavailable integration for a device."""
FAILURE_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds until a failed import is tried again, by number of failures; the last repeats."""
MAX_CACHED_FAILURES = 10_000
"""Imports whose failures are cached."""


class _ImportFailure(NamedTuple):
    times: int
    """The number of earlier failures."""
    reason: str
    until: float
    """The time of the next attempt."""


class ImportBackoff:
    """Pauses imports that fail, longer each time. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._failures: LruCache[int, _ImportFailure] = LruCache(MAX_CACHED_FAILURES)

    def find_ready(self, running: Sequence[Import], now: float) -> Import | None:
        """Return the first import that is not paused."""
        for job in running:
            failure = self._failures.get(job.id)
            if failure is None or failure.until <= now:
                return job
        return None

    def reset(self, job: Import) -> None:
        """Record that an import progressed."""
        self._failures.pop(job.id)

    def record_failure(self, job: Import, now: float, reason: str) -> bool:
        """Pause an import; return whether the reason is a new one."""
        before = self._failures.get(job.id)
        times = 0 if before is None else before.times + 1
        pause = FAILURE_PAUSES_SECONDS[min(times, len(FAILURE_PAUSES_SECONDS) - 1)]
        self._failures.put(job.id, _ImportFailure(times, reason, now + pause))
        return before is None or before.reason != reason


@dataclass(frozen=True, kw_only=True)
class ImportWorker:
    """Processes imports, in one replica."""

    store: ImportStore
    sheets: SheetService
    adder: DeviceAdder
    integration_device_writer: IntegrationDeviceWriter
    devices: DeviceStore
    groups: GroupStore

    _pauses: ImportBackoff = field(default_factory=ImportBackoff, init=False)

    async def run(self) -> None:
        """Process imports until cancelled."""
        tenants, wake = (
            self.store.list_running_tenants,
            self.store.wakeups.create_event(IMPORTS_TOPIC),
        )
        await take_turns(
            "imports",
            CONCURRENT_TENANTS,
            tenants,
            self.process_imports,
            QUERY_INTERVAL_SECONDS,
            wake,
            tenants,
        )

    async def process_imports(self, tenant: str) -> TenantSteps:
        """Process the imports of a tenant, the oldest that is not paused first."""
        while job := self._pauses.find_ready(
            await self.store.list_running(tenant), time.monotonic()
        ):
            await self._run_turn(job)
            yield

    async def _run_turn(self, job: Import) -> None:
        """Continue an import; log a failure when its reason changes."""
        try:
            await self._process_rows(job)
        except NoResponders as error:
            if not job.waiting:
                await self.store.set_waiting(job.id, waiting=True)
            if self._pauses.record_failure(job, time.monotonic(), repr(error)):
                log.warning("import %d waits: %s", job.id, error)
        except Exception as error:
            if self._pauses.record_failure(job, time.monotonic(), repr(error)):
                log.exception("import %d failed and is tried again later", job.id)
        else:
            self._pauses.reset(job)

    async def _process_rows(self, job: Import) -> None:
        """Process an import for `TURN_SECONDS` seconds.

        Raises `NoResponders` when its integration or `management` is not running.
        """
        try:
            form, columns = await self.sheets.load_columns(job.principal, job.integration)
            heads = columns.match_columns(Sheet(job.columns, []))
        except (Forbidden, InvalidInput, NotFound) as error:  # a retry would fail too
            log.warning("import %d is cancelled: %s", job.id, error)
            await self.store.end_import(job.id, "CANCELLED")
            return
        rows_by_identifier = await self.store.find_row_numbers_by_identifier(job.id)
        until = time.monotonic() + TURN_SECONDS
        no_responders: list[NoResponders] = []

        async def prepare(row: ImportRow) -> tuple[ImportRow, DeviceDraft] | None:
            if no_responders or time.monotonic() > until:
                return None
            request, _ = columns.build_request(heads, row.cells)
            try:
                draft = await self._request_draft_with_retries(job.principal, form, request)
                _claim_device(row, draft.new.identifier, rows_by_identifier)
            except NoResponders as error:
                no_responders.append(error)
                return None
            except ThingwayError as error:
                fail_row(row, error)
                return None
            return row, draft

        while rows := await self.store.find_pending_rows(job.id, ROWS_PER_READ):
            if not await self.store.is_running(job.id):
                return
            ready = await gather_limited(CONCURRENT_ROWS, (partial(prepare, row) for row in rows))
            await self._write_drafts(
                job, form, [prepared for prepared in ready if prepared is not None]
            )
            await self.store.write_outcomes(job.id, rows)
            if no_responders:
                raise no_responders[0]
            if job.waiting:
                log.info("import %d continues", job.id)
                await self.store.set_waiting(job.id, waiting=False)
                job.waiting = False
            if time.monotonic() > until:
                return
        await self.store.end_import(job.id, "DONE")

    async def _request_draft_with_retries(
        self, principal: Principal, form: AddDeviceForm, request: CreateDevice
    ) -> DeviceDraft:
        for pause in RETRY_DELAYS_SECONDS:
            try:
                return await self.adder.request_draft(principal, form, request)
            except NoResponders:
                raise
            except Unavailable:
                await asyncio.sleep(pause)
        return await self.adder.request_draft(principal, form, request)

    async def _write_drafts(
        self, job: Import, form: AddDeviceForm, ready: Sequence[tuple[ImportRow, DeviceDraft]]
    ) -> None:
        """Write new devices together, or each separately when that fails."""
        keys = [serial_key(draft.new.identifier) for _, draft in ready]
        stored_keys = {device.sn_key for device in await self.devices.find_by_serials(keys)}
        fresh = [
            prepared for key, prepared in zip(keys, ready, strict=True) if key not in stored_keys
        ]
        try:
            made = await asyncio.gather(
                *(self.integration_device_writer.build(draft) for _, draft in fresh)
            )
            if made:
                await self.integration_device_writer.insert_all(made)
        except (ThingwayError, SerialTaken):
            fresh = []
        for row, _ in fresh:
            row.outcome = "CREATED"
        for row, draft in ready:
            if row.outcome is None:
                await self._write_draft(job, form, row, draft)

    async def _write_draft(
        self, job: Import, form: AddDeviceForm, row: ImportRow, draft: DeviceDraft
    ) -> None:
        try:
            await self.adder.write_draft(form, draft)
            row.outcome = "CREATED"
        except Conflict as error:
            await self._update_or_fail(job, row, draft, error)
        except ThingwayError as error:
            fail_row(row, error)

    async def _update_or_fail(
        self, job: Import, row: ImportRow, draft: DeviceDraft, conflict: Conflict
    ) -> None:
        try:
            row.outcome = await self._update_device(job, draft)
        except ThingwayError as error:
            fail_row(row, error)
            return
        if row.outcome is None:
            fail_row(row, conflict)

    async def _update_device(self, job: Import, draft: DeviceDraft) -> RowOutcome | None:
        """Update an existing device from its row, and return the outcome.

        Returns None if the integration has no device of this identifier in the tenant. Blank cells
        change nothing.
        """
        tenant = job.tenant
        identifier = draft.new.identifier
        existing = await self.devices.find_by_identifier(tenant, job.integration, identifier)
        if existing is None:
            return None
        if existing.created_at >= job.created_at and existing.user_id == job.user_id:
            return "CREATED"  # by a process that crashed before it recorded the outcome
        group = (
            await self.integration_device_writer.find_or_create_group(draft)
            if draft.group_name
            else existing.group
        )
        location = existing.location if draft.location is None else draft.location
        if (draft.name, group, location) != (existing.name, existing.group, existing.location):
            changes = DeviceChanges(name=draft.name, group=group, location=location)
            join = None if group is None else partial(self.groups.record_join, tenant, group)
            await self.devices.change_each(tenant, [existing.id], {}, lambda _: changes, join)
        return "UPDATED"


def _claim_device(row: ImportRow, identifier: str, rows_by_identifier: dict[str, int]) -> None:
    """Record which row has a device; raise `Conflict` when another row has it."""
    other = rows_by_identifier.setdefault(identifier, row.number)
    if other != row.number:
        raise same_device_conflict(other)
    row.identifier = identifier
