"""The integration `openapi-client`, in a single replica, with one sync per tenant at a time."""

import asyncio
import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from libs.common.contracts.integrations import (
    AddDevice,
    CallService,
    DeviceCommand,
    DeviceRef,
    NewDevice,
    PropertiesUpdated,
    ServiceResult,
)
from libs.common.errors import InvalidInput, NotFound, ThingwayError
from libs.common.integrations import Integration, IntegrationThings
from libs.common.jobs import NamedTasks, wait_for_event
from services.management.builtin.openapi_client.accounts import RemoteAccounts
from services.management.builtin.openapi_client.commands import CommandForwarder
from services.management.builtin.openapi_client.store import DeviceLink, OpenApiStore
from services.management.builtin.openapi_client.sync import (
    Sync,
    describe_new_device,
    exists_on_this_platform,
)
from services.management.manifests import load_manifest

log = logging.getLogger(__name__)

MIN_SYNC_INTERVAL_SECONDS, MAX_SYNC_INTERVAL_SECONDS = 30, 86_400
"""Minimum and maximum seconds between two scheduled syncs."""
RUNNING, DONE, FAILED = "running", "done", "failed"
"""States of a sync; lower case, because existing consoles have no labels for keys in capitals."""

MAX_SECONDS_BETWEEN_CHECKS = 30.0
"""Maximum seconds between two checks for due syncs."""
SYNC_TIMEOUT_SECONDS = 3600
"""Maximum seconds of a sync; the next one continues it."""


class OpenApiClient(Integration):
    """Imports devices of other platforms; `run` executes scheduled syncs."""

    manifest = load_manifest("openapi-client")

    def __init__(
        self,
        things: IntegrationThings,
        store: OpenApiStore,
        accounts: RemoteAccounts,
        carrier: CommandForwarder,
    ) -> None:
        self._things = things
        self._store = store
        self._accounts = accounts
        self._carrier = carrier
        self._sync = Sync(things, store)
        self._syncing = NamedTasks()
        self._changed = asyncio.Event()
        self._given: dict[str, dict[str, Any]] = {}
        """Changed properties by tenant, until the schedule is read: `device` stores them later."""

    async def add_device(self, request: AddDevice) -> NewDevice:
        """Find the device on the other platform.

        An existing device keeps its position in the history. A device that was deleted here starts
        from the beginning, because its data was deleted too.
        """
        remote = await self._accounts.get_platform(request.tenant)
        text = str(request.params["device"]).strip()
        remote_device = await remote.find_device(text)
        if remote_device is None:
            raise InvalidInput(f"the other application has no device {text!r}", field="device")
        link = DeviceLink(
            url=remote.account.base_url,
            remote_id=remote_device.id,
            state="asked",
            name=remote_device.name or remote_device.sn,
            model=remote_device.model or "",
        )
        known = await self._store.find_link(request.tenant, remote_device.sn)
        if (
            known is not None
            and (known.url, known.remote_id) == (link.url, link.remote_id)
            and await exists_on_this_platform(self._things, request.tenant, remote_device.sn)
        ):
            link.at, link.seen = known.at, known.seen
        await self._store.save_link(request.tenant, remote_device.sn, link)
        return await describe_new_device(remote, remote_device)

    async def delete_device(self, device: DeviceRef) -> None:
        """Exclude the device from syncs."""
        await self._store.exclude_device(device.tenant, device.identifier)

    async def call(self, request: CallService) -> ServiceResult:
        """Start a sync, unless one is running; the properties show its result."""
        if request.service_id != "sync":
            raise NotFound(f"the service {request.service_id} does not exist", field="serviceId")
        await self._accounts.get_platform(request.tenant)
        self._start_sync(request.tenant)
        return ServiceResult()

    async def updated(self, change: PropertiesUpdated) -> None:
        """Store the secret, and check the schedule again."""
        await self._accounts.handle_changed_settings(change.tenant, change.properties)
        self._given[change.tenant] = change.properties
        self._changed.set()

    async def command(self, request: DeviceCommand) -> None:
        """Send a command to the other platform."""
        await self._carrier.accept(request)

    async def run(self) -> None:
        """Resume the commands of another replica, and run scheduled syncs, for ever."""
        try:
            await self._carrier.resume()
            while True:
                self._changed.clear()
                wait = await self._start_due_syncs()
                await wait_for_event(self._changed, wait)
        finally:
            await self._syncing.stop()
            await self._carrier.stop()

    async def _start_due_syncs(self) -> float:
        """Start the syncs that are due; return the seconds until the next check."""
        waits = [MAX_SECONDS_BETWEEN_CHECKS]
        for tenant, last in (await self._store.read_last_sync_times()).items():
            try:
                stored = (await self._things.get_own_values(tenant)).properties
            except ThingwayError as error:
                log.warning("openapi-client: the schedule of %s cannot be read: %s", tenant, error)
                continue
            values = stored | self._given.pop(tenant, {})
            wait = seconds_until_sync(values, last)
            if (
                wait == 0 or values.get("sync_status") == RUNNING
            ):  # or interrupted in another replica
                self._start_sync(tenant)
            elif wait is not None:
                waits.append(wait)
        return min(waits)

    def _start_sync(self, tenant: str) -> None:
        self._syncing.start(f"sync of {tenant}", partial(self._sync_tenant, tenant))

    async def _sync_tenant(self, tenant: str) -> None:
        await self._report_properties(tenant, {"sync_status": RUNNING})
        try:
            async with asyncio.timeout(SYNC_TIMEOUT_SECONDS):
                tally = await self._sync.sync_tenant(
                    tenant, await self._accounts.get_platform(tenant)
                )
        except ThingwayError as error:
            outcome: dict[str, Any] = {"sync_status": FAILED, "last_error": error.text}
        except TimeoutError:
            text = f"not finished within {SYNC_TIMEOUT_SECONDS} s; the next sync continues"
            outcome = {"sync_status": FAILED, "last_error": text}
        else:
            outcome = {
                "sync_status": DONE,
                "last_error": tally.first_rejection,
                "synced_devices": tally.devices,
                "synced_reports": tally.reports,
            }
        await self._store.mark_synced(tenant)
        ended = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        await self._report_properties(tenant, outcome | {"last_sync": ended})

    async def _report_properties(self, tenant: str, properties: dict[str, Any]) -> None:
        try:
            await self._things.report_own(tenant, properties)
        except ThingwayError as error:
            log.warning("openapi-client: the state of %s cannot be reported: %s", tenant, error)


def seconds_until_sync(values: Mapping[str, Any], last: datetime | None) -> float | None:
    """Return the seconds until the next scheduled sync, 0 if it is due; None if unscheduled."""
    scheduled = values.get("scheduled") or {}
    period = scheduled.get("period")
    if not scheduled.get("enabled") or not isinstance(period, int):
        return None
    period = min(max(period, MIN_SYNC_INTERVAL_SECONDS), MAX_SYNC_INTERVAL_SECONDS)
    return 0.0 if last is None else max(0.0, last.timestamp() + period - time.time())
