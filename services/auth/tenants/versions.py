"""The version of a tenant's access, and how Redis is kept at it."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from pymongo import ReturnDocument

from libs.common.errors import NotFound
from libs.common.identity.access import AccessVersions
from libs.common.store.mongo import Database, Session

log = logging.getLogger(__name__)

SETTLE = 2.0
"""Seconds between sweeps."""
RECENT = timedelta(seconds=30)
"""How far back a sweep looks: longer than a crash and a take-over last."""


class TenantVersions:
    """The field `access` of the collection `tenants`."""

    def __init__(self, database: Database) -> None:
        self._tenants = database["tenants"]

    async def raised(self, tenant: str, session: Session) -> int:
        """Raise the version in the caller's transaction; raise `NotFound` without the tenant."""
        document = await self._tenants.find_one_and_update(
            {"_id": tenant},
            {"$inc": {"access": 1}, "$set": {"accessChangedAt": datetime.now(UTC)}},
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        if document is None:
            raise NotFound(f"there is no tenant {tenant}", field="tenant")
        return int(document["access"])

    async def current(self, tenant: str) -> int:
        """The version of now, 0 when there is no such tenant."""
        document = await self._tenants.find_one({"_id": tenant}, {"access": 1})
        return int(document["access"]) if document else 0

    async def sweep(self, versions: AccessVersions) -> None:
        """Make good, for ever, what a crash left out between MongoDB and Redis."""
        while True:
            try:
                recent = {"accessChangedAt": {"$gt": datetime.now(UTC) - RECENT}}
                async for document in self._tenants.find(recent, {"access": 1}):
                    await versions.reach(document["_id"], document["access"])
            except Exception:
                log.exception("access versions could not be settled; they are tried again")
            await asyncio.sleep(SETTLE)
