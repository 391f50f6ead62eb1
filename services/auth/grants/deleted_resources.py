"""Removes the grants of deleted resources: when events tell of it, and by a sweep."""

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

DURABLE = "auth"
DELETED = "event.*.device.*.deleted"
BATCH = 200
TENANTS = 4
"""Tenants whose events are handled at the same time."""


def consumer_of_deletions(bus: Bus, grants: GrantService) -> BatchConsumer:
    """Forgets the grants of devices when events tell that they were deleted."""

    async def handle(messages: list[Msg]) -> None:
        names = [message.subject.split(".")[3] for message in messages]
        devices = [Resource(ResourceType.DEVICE, int(name)) for name in names]
        await grants.forget_all(event_tenant(messages[0]), devices)
        await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable=DURABLE,
        subject=DELETED,
        handle=handle,
        lane=event_tenant,
        batch=BATCH,
        concurrency=TENANTS,
    )


log = logging.getLogger(__name__)

PERIOD = 3600.0
"""Seconds between two sweeps; the first comes that late too, when all services are there."""
PAUSE = 0.5
"""Seconds between two pages of a sweep."""
FRESH = timedelta(hours=1)
"""Younger grants are left alone: what they are of may be in the making."""


@dataclass(frozen=True)
class GrantSweep:
    """Walks through all grants, page by page."""

    grants: GrantService

    async def run(self) -> None:
        """Sweep once an hour, for ever; run by the lease holder."""
        await asyncio.sleep(PERIOD)
        await repeat(self.once, PERIOD, "the sweep of grants waits")

    async def once(self) -> None:
        """Look at every grant."""
        after: Any = None
        while page := await self.grants.accounts.grants.older(FRESH, after):
            tenants: dict[str, list[Resource]] = defaultdict(list)
            after = page[-1][0]
            for _, tenant, resource in page:
                tenants[tenant].append(resource)
            for tenant, resources in tenants.items():
                gone = await self.grants.owners.missing(tenant, list(dict.fromkeys(resources)))
                if gone:
                    log.info("%d grants in %s are of what is gone", len(gone), tenant)
                    await self.grants.forget_all(tenant, gone)
            await asyncio.sleep(PAUSE)
