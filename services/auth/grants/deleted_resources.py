"""Deletes the grants of deleted resources, on events and in an hourly sweep."""

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from nats.aio.msg import Msg

from libs.common.bus import EVENTS, BatchConsumer, Bus, acknowledge, event_tenant
from libs.common.contracts.access import ResourceType
from libs.common.scheduling.turns import repeat
from services.auth.accounts.grants import Resource
from services.auth.grants.service import GrantService

MAX_CONCURRENT_TENANTS = 4
"""Maximum tenants whose events are handled concurrently."""


def create_deletion_consumer(bus: Bus, grants: GrantService) -> BatchConsumer:
    """Return the consumer that deletes the grants of deleted devices."""

    async def handle(messages: list[Msg]) -> None:
        names = [message.subject.split(".")[3] for message in messages]
        devices = [Resource(ResourceType.DEVICE, int(name)) for name in names]
        await grants.remove_from_all_roles(event_tenant(messages[0]), devices)
        await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable="auth",
        subject="event.*.device.*.deleted",
        handle=handle,
        lane=event_tenant,
        batch=200,
        concurrency=MAX_CONCURRENT_TENANTS,
    )


log = logging.getLogger(__name__)

SWEEP_SECONDS = 3600.0
"""Seconds between two sweeps, and before the first one, so that all services run by then."""
PAGE_PAUSE_SECONDS = 0.5
"""Seconds between two pages of a sweep."""
MIN_GRANT_AGE = timedelta(hours=1)
"""Minimum age of checked grants, because a newer grant's resource may not exist yet."""


@dataclass(frozen=True)
class GrantSweep:
    """Deletes the grants of missing resources, page by page."""

    grants: GrantService

    async def run(self) -> None:
        """Sweep every hour; runs in the lease holder."""
        await asyncio.sleep(SWEEP_SECONDS)
        await repeat(self.sweep, SWEEP_SECONDS, "the sweep of grants failed; retrying")

    async def sweep(self) -> None:
        """Delete the grants of missing resources that are older than `MIN_GRANT_AGE`."""
        after: Any = None
        while page := await self.grants.accounts.grants.list_page_older_than(MIN_GRANT_AGE, after):
            tenants: dict[str, list[Resource]] = defaultdict(list)
            after = page[-1][0]
            for _, tenant, resource in page:
                tenants[tenant].append(resource)
            for tenant, resources in tenants.items():
                missing = await self.grants.owners.find_missing(
                    tenant, list(dict.fromkeys(resources))
                )
                if missing:
                    log.info(
                        "tenant %s: deleting grants of %d missing resources", tenant, len(missing)
                    )
                    await self.grants.remove_from_all_roles(tenant, missing)
            await asyncio.sleep(PAGE_PAUSE_SECONDS)
