"""A sync of a tenant: devices with their TSLs, then their new reports.

A sync may be repeated: existing devices are unchanged, and the history continues after the last
imported report, page by page. Because reports may arrive at the other platform slightly out of
order, the last minutes are requested again each time; digests identify imported reports.
"""

import asyncio
import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice, starmap

import msgspec

from libs.common.clock import now_ms
from libs.common.contracts.integrations import NewDevice
from libs.common.errors import Conflict, InvalidInput, NotFound, TooLarge, UpstreamFailed
from libs.common.integrations import IntegrationThings
from libs.common.scheduling import FairScheduler
from libs.common.things import GENERIC_MODEL
from services.management.builtin.openapi_client.remote import (
    HistoryPage,
    HistoryReport,
    RemoteDevice,
    RemotePlatform,
)
from services.management.builtin.openapi_client.store import DeviceLink, OpenApiStore

HISTORY_OVERLAP_MS = 10 * 60_000
MAX_DIGESTS_PER_DEVICE = 2000
"""Maximum digests per device; beyond it, the oldest are dropped and older reports are skipped."""
MAX_HISTORY_DAYS = 30
"""Maximum days of history that a sync requests."""
DAY_MS = 86_400_000
log = logging.getLogger(__name__)

MAX_CONCURRENT_REPORTS_PER_PAGE = 16
"""Reports of a page that are sent concurrently."""
MAX_CONCURRENT_PAGES = 4
"""Pages of history of all tenants that are processed concurrently."""


def choose_history_start_ms(link: DeviceLink, now: int) -> int:
    """Return the time from which to request reports, ms."""
    return max(link.at - HISTORY_OVERLAP_MS, now - MAX_HISTORY_DAYS * DAY_MS, 0)


def digest_report(record: HistoryReport) -> str:
    """Return a digest of a report's time and content."""
    content = msgspec.json.encode([record.ts, record.properties], order="deterministic")
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def find_new_reports(
    link: DeviceLink, records: Iterable[HistoryReport]
) -> dict[str, HistoryReport]:
    """Return the reports that were not imported yet, by digest."""
    oldest = min(link.seen.values(), default=0) if len(link.seen) >= MAX_DIGESTS_PER_DEVICE else 0
    records_by_digest = {digest_report(record): record for record in records if record.ts >= oldest}
    return {
        digest: record for digest, record in records_by_digest.items() if digest not in link.seen
    }


def record_imported(link: DeviceLink, imported: dict[str, HistoryReport]) -> None:
    """Add the digests of imported reports to the link, and set the time of the newest one."""
    link.at = max([link.at, *(record.ts for record in imported.values())])
    times_by_digest = link.seen | {digest: record.ts for digest, record in imported.items()}
    recent = [
        (ts, digest) for digest, ts in times_by_digest.items() if ts >= link.at - HISTORY_OVERLAP_MS
    ]
    link.seen = {digest: ts for ts, digest in sorted(recent)[-MAX_DIGESTS_PER_DEVICE:]}


@dataclass
class SyncResult:
    """The result of a sync."""

    devices: int = 0
    reports: int = 0
    rejected: int = 0
    first_rejection: str = ""
    """Reason why the first device or report was rejected."""

    def count_rejected(self, device: str, error: Exception) -> None:
        """Count a rejected device or report."""
        self.rejected += 1
        self.first_rejection = self.first_rejection or f"{device}: {error}"


async def describe_new_device(remote: RemotePlatform, device: RemoteDevice) -> NewDevice:
    """Describe a remote device for its creation here, with its TSL unless it is generic."""
    model = device.model or GENERIC_MODEL
    tsl = None if model == GENERIC_MODEL else await remote.get_tsl(device.id)
    return NewDevice(
        identifier=device.sn,
        model=model,
        additional={"deviceId": device.id, "baseUrl": remote.account.base_url},
        tsl=tsl,
    )


async def exists_on_this_platform(things: IntegrationThings, tenant: str, identifier: str) -> bool:
    """Return whether a device exists on this platform."""
    try:
        await things.get_tsl(tenant, identifier)
    except NotFound:
        return False
    return True


class Sync:
    """Syncs tenants."""

    def __init__(self, things: IntegrationThings, store: OpenApiStore) -> None:
        self._things = things
        self._store = store
        self._pages = FairScheduler("openapi-client pages", MAX_CONCURRENT_PAGES)

    async def sync_tenant(self, tenant: str, remote: RemotePlatform) -> SyncResult:
        """Import all devices and reports; count devices and reports that are rejected.

        Raises errors that end the sync, for example `Unavailable`.
        """
        tally = SyncResult()
        async for device in remote.iterate_devices():
            try:
                link = await self._import_device(tenant, remote, device)
                if link is not None:
                    tally.devices += 1
                    await self._import_history(tenant, remote, device, link, tally)
            except (InvalidInput, Conflict, NotFound, TooLarge, UpstreamFailed) as error:
                log.info("sync of %s in %s: %s", device.sn, tenant, error)
                tally.count_rejected(device.sn, error)
        return tally

    async def _import_device(
        self, tenant: str, remote: RemotePlatform, device: RemoteDevice
    ) -> DeviceLink | None:
        """Create or update a device; return its link, None if a user has deleted the device."""
        link = await self._store.find_link(tenant, device.sn)
        url = remote.account.base_url
        if link is not None and (link.url, link.state) == (url, "left"):
            await self._store.exclude_device(tenant, device.sn)
            return None
        if link is None or (link.url, link.remote_id) != (url, device.id):
            link = DeviceLink(url=url, remote_id=device.id, state="asked")
        name = device.name or device.sn
        if (
            link.state == "asked"
            and link.name
            and await exists_on_this_platform(self._things, tenant, device.sn)
        ):
            link.state = "here"
        if link.state == "asked" or (link.name, link.model) != (name, device.model or ""):
            await self._things.put_device(tenant, name, await describe_new_device(remote, device))
            link.state, link.name, link.model = "here", name, device.model or ""
        await self._store.save_link(tenant, device.sn, link)
        return link

    async def _import_history(
        self,
        tenant: str,
        remote: RemotePlatform,
        device: RemoteDevice,
        link: DeviceLink,
        tally: SyncResult,
    ) -> None:
        now = now_ms()
        pages = remote.iterate_history(device.id, choose_history_start_ms(link, now), now)
        more = True
        while more:
            async with self._pages.slot(tenant):
                page = await anext(pages, None)
                more = page is not None and await self._import_page_unless_deleted(
                    tenant, device, link, page, tally
                )

    async def _import_page_unless_deleted(
        self,
        tenant: str,
        device: RemoteDevice,
        link: DeviceLink,
        page: HistoryPage,
        tally: SyncResult,
    ) -> bool:
        """Import a page of reports; return False if a user has deleted the device."""
        new = find_new_reports(link, page.records)

        async def send_report(digest: str, record: HistoryReport) -> bool:
            try:
                report_id = f"{device.id}-{digest}"
                await self._things.report(
                    tenant, device.sn, record.properties, record.ts, report_id=report_id
                )
                tally.reports += 1
            except (InvalidInput, TooLarge) as error:
                tally.count_rejected(device.sn, error)
            except NotFound:
                return False
            return True

        rest = iter(new.items())
        while batch := list(islice(rest, MAX_CONCURRENT_REPORTS_PER_PAGE)):
            outcomes = await asyncio.gather(*starmap(send_report, batch), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            if not all(outcomes):
                await self._store.exclude_device(tenant, device.sn)
                return False
        record_imported(link, new)
        await self._store.save_link(tenant, device.sn, link)
        return True
