"""Resources in MongoDB: a document per file, with its content.

`resources`: `{_id, tenant, name, type, size, content, usedBy: [id], createdAt, expiresAt?}`.
`usedBy` are the dashboards and canvases that refer to it; without any, MongoDB deletes it at
`expiresAt`.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from libs.common.errors import TooManyRequests
from libs.common.limits.quota import AGAIN, Quota
from libs.common.limits.tenants import LimitsCache, count_limited
from libs.common.store.mongo import (
    Database,
    Document,
    DuplicateKey,
    Session,
    read_document,
    to_document,
)
from services.management.resources.schemas import PREFIX, UPLOAD_MINUTES, Resource

UNUSED = timedelta(minutes=UPLOAD_MINUTES)
"""Time for which an unused file is kept, so that it can be moved to another place."""
_NAMED = re.compile(re.escape(PREFIX) + "([A-Za-z0-9_-]{32})(?![A-Za-z0-9_-])")


class ResourceStore:
    """The collection `resources`."""

    def __init__(self, database: Database, limits: LimitsCache) -> None:
        self._resources = database["resources"]
        self._limits = limits
        self._quota = Quota(self._resources, limits, "records")

    async def insert(self, resource: Resource) -> bool:
        """Insert a file; return False if its key exists.

        Raises `TooManyRequests` if the tenant has reached its limit of files or bytes.
        """
        await self._quota.reserve(resource.tenant)
        await self._check_bytes(resource)
        try:
            await self._resources.insert_one(to_document(resource))
        except DuplicateKey:
            return False
        return True

    async def get(self, key: str, *, whole: bool = True) -> Resource | None:
        """Return a file of any tenant, without its content unless `whole`.

        Its key is the only credential.
        """
        found = await self._resources.find_one({"_id": key}, None if whole else {"content": 0})
        return read_document(found, Resource)

    async def has(self, tenant: str, url: str) -> bool:
        """Return whether a URL belongs to a resource of the tenant."""
        query: Document = {"_id": {"$in": keys_in([url])}, "tenant": tenant}
        return await self._resources.find_one(query, {"_id": 1}) is not None

    async def hold(self, tenant: str, holder: int, texts: Iterable[str], session: Session) -> None:
        """Keep resources that the texts of a dashboard or canvas refer to; release others."""
        keys = keys_in(texts)
        if keys:
            await self._resources.update_many(
                {"_id": {"$in": keys}, "tenant": tenant},
                {"$addToSet": {"usedBy": holder}, "$unset": {"expiresAt": ""}},
                session=session,
            )
        await self._let_go(tenant, [holder], {"_id": {"$nin": keys}}, session)

    async def release(self, tenant: str, holders: Sequence[int], session: Session) -> None:
        """Release the resources of deleted dashboards and canvases."""
        await self._let_go(tenant, holders, {}, session)

    async def _let_go(
        self, tenant: str, holders: Sequence[int], only: Document, session: Session
    ) -> None:
        left = {"$setDifference": ["$usedBy", list(holders)]}
        end = {"$cond": [{"$eq": ["$usedBy", []]}, datetime.now(UTC) + UNUSED, "$$REMOVE"]}
        await self._resources.update_many(
            {"tenant": tenant, "usedBy": {"$in": list(holders)}, **only},
            [{"$set": {"usedBy": left}}, {"$set": {"expiresAt": end}}],
            session=session,
        )

    async def _check_bytes(self, resource: Resource) -> None:
        most = (await self._limits.fetch(resource.tenant)).resource_bytes
        rows = await self._resources.aggregate(
            [
                {"$match": {"tenant": resource.tenant}},
                {"$group": {"_id": None, "size": {"$sum": "$size"}}},
            ],
            hint="tenant_size",
        )
        used = sum([row["size"] async for row in rows])
        if used + len(resource.content) > most:
            count_limited("resource_bytes", resource.tenant)
            raise TooManyRequests(
                f"resource_bytes: the tenant has {used} bytes of resources, {most} are allowed",
                retry_after=AGAIN,
            )


def keys_in(texts: Iterable[str]) -> list[str]:
    """Return the keys of the resources that texts refer to."""
    return sorted({key for text in texts for key in _NAMED.findall(text)})
