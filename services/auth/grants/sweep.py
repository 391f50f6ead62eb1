"""Removes grants of what is gone, where its owner could not tell of its end."""

import asyncio
import logging
from collections import defaultdict
from datetime import timedelta
from typing import Any

from libs.common.scheduling.turns import repeat
from services.auth.accounts.grants import GrantStore, Resource
from services.auth.grants.owners import Owners
from services.auth.grants.service import GrantService

log = logging.getLogger(__name__)

PERIOD = 3600.0
"""Seconds between two sweeps; the first comes that late too, when all services are there."""
PAUSE = 0.5
"""Seconds between two pages of a sweep."""
FRESH = timedelta(hours=1)
"""Younger grants are left alone: what they are of may be in the making."""


class GrantSweep:
    """Walks through all grants, page by page."""

    def __init__(self, store: GrantStore, owners: Owners, grants: GrantService) -> None:
        self._store = store
        self._owners = owners
        self._grants = grants

    async def run(self) -> None:
        """Sweep once an hour, for ever; run by the lease holder."""
        await asyncio.sleep(PERIOD)
        await repeat(self.once, PERIOD, "the sweep of grants waits")

    async def once(self) -> None:
        """Look at every grant."""
        after: Any = None
        while page := await self._store.older(FRESH, after):
            tenants: dict[str, list[Resource]] = defaultdict(list)
            after = page[-1][0]
            for _, tenant, resource in page:
                tenants[tenant].append(resource)
            for tenant, resources in tenants.items():
                gone = await self._owners.missing(tenant, list(dict.fromkeys(resources)))
                if gone:
                    log.info("%d grants in %s are of what is gone", len(gone), tenant)
                    await self._grants.forget_all(tenant, gone)
            await asyncio.sleep(PAUSE)
