"""Dashboards in MongoDB: one document each, with its main canvas.

`dashboards`: `{_id, tenant, name, description?, cover?: {type, data}, userId?, createdAt}` and the
fields of `services.management.dashboards.content`. `home_dashboards`: `{_id, tenant, dashboard}`,
where `_id` is a user.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from pymongo import ReturnDocument

from libs.common.clock import from_ms, to_ms
from libs.common.errors import Conflict
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import KnownLimits
from libs.common.store.mongo import Document, DuplicateKey, Mongo, Session, containing
from services.management.dashboards.content import content_of, stored
from services.management.dashboards.covers import Cover
from services.management.dashboards.schemas import Dashboard, DashboardChanges
from services.management.resources.store import ResourceStore

Forgetting = Callable[[str, Sequence[int], Session], Awaitable[None]]
"""What goes with dashboards of a tenant, in the same transaction."""


class DashboardStore:
    """The collections `dashboards` and `home_dashboards`."""

    def __init__(self, mongo: Mongo, limits: KnownLimits, resources: ResourceStore) -> None:
        self._mongo = mongo
        self._dashboards = mongo.database["dashboards"]
        self._homes = mongo.database["home_dashboards"]
        self._quota = Quota(self._dashboards, limits, "records")
        self._resources = resources

    async def insert(self, dashboard: Dashboard) -> None:
        """Add a dashboard; raise `Conflict` when the tenant has one of that name.

        Raises `TooManyRequests` when the tenant has as many as it may.
        """
        await self._quota.take(dashboard.tenant)

        async def work(session: Session) -> None:
            document = _document(dashboard)
            await self._dashboards.insert_one(document, session=session)
            await self._resources.hold(dashboard.tenant, dashboard.id, _texts(document), session)

        try:
            await self._mongo.transaction(work)
        except DuplicateKey as error:
            raise _taken(dashboard.name) from error

    async def get(self, tenant: str, dashboard_id: int) -> Dashboard | None:
        """One dashboard of a tenant."""
        document = await self._dashboards.find_one({"_id": dashboard_id, "tenant": tenant})
        return None if document is None else _dashboard(document)

    async def change(self, tenant: str, dashboard_id: int, changes: DashboardChanges) -> bool:
        """Set what `changes` has; False when it is gone. Raises `Conflict` for the name."""

        async def work(session: Session) -> bool:
            document = await self._dashboards.find_one_and_update(
                {"_id": dashboard_id, "tenant": tenant},
                {"$set": _changed(changes)},
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            if document is None:
                return False
            await self._resources.hold(tenant, dashboard_id, _texts(document), session)
            return True

        try:
            return await self._mongo.transaction(work)
        except DuplicateKey as error:
            raise _taken(changes.name) from error

    async def remove(self, tenant: str, ids: Sequence[int], also: Forgetting) -> list[int]:
        """Delete dashboards with all that goes with them; which of `ids` there were."""

        async def work(session: Session) -> list[int]:
            query: Document = {"_id": {"$in": list(ids)}, "tenant": tenant}
            found = self._dashboards.find(query, {"_id": 1}, session=session)
            gone = [document["_id"] async for document in found]
            await self._dashboards.delete_many(query, session=session)
            await self._homes.delete_many(
                {"tenant": tenant, "dashboard": {"$in": gone}}, session=session
            )
            await self._resources.release(tenant, gone, session)
            await also(tenant, gone, session)
            return gone

        return await self._mongo.transaction(work)

    async def list(
        self, tenant: str, ids: Sequence[int] | None = None, keyword: str = ""
    ) -> list[Dashboard]:
        """Return dashboards of a tenant by age, all or those of `ids` whose name has `keyword`.

        They come without their widgets.
        """
        query: dict[str, Any] = {"tenant": tenant}
        if ids is not None:
            query["_id"] = {"$in": list(ids)}
        if keyword:
            query["name"] = containing(keyword, "name")
        found = self._dashboards.find(query, {"widgets": 0}, sort=[("createdAt", 1), ("_id", 1)])
        return [_dashboard(document) async for document in found]

    async def read(
        self, tenant: str, ids: Sequence[int] | None = None
    ) -> AsyncGenerator[Dashboard, None]:
        """Yield the same with widgets, each read by itself: one has up to 4 MiB of them."""
        for listed in await self.list(tenant, ids):
            if (dashboard := await self.get(tenant, listed.id)) is not None:
                yield dashboard

    # The dashboard that a user begins with.

    async def home(self, tenant: str, user_id: int) -> int | None:
        """The home of a user; it may be gone by now."""
        found = await self._homes.find_one({"_id": user_id, "tenant": tenant})
        return None if found is None else int(found["dashboard"])

    async def set_home(self, tenant: str, user_id: int, dashboard_id: int) -> None:
        """Let a dashboard be the home of a user, instead of another one."""
        await self._homes.update_one(
            {"_id": user_id, "tenant": tenant}, {"$set": {"dashboard": dashboard_id}}, upsert=True
        )

    async def end_home(self, tenant: str, user_id: int, dashboard_id: int) -> None:
        """Let a user have no home, if it is this dashboard."""
        await self._homes.delete_one({"_id": user_id, "tenant": tenant, "dashboard": dashboard_id})

    async def forget_users(self, tenant: str, ids: Sequence[int]) -> None:
        """Users are gone."""
        await self._homes.delete_many({"tenant": tenant, "_id": {"$in": list(ids)}})

    async def has_resource(self, tenant: str, url: str) -> bool:
        """Whether a URL is that of a resource of the tenant."""
        return await self._resources.has(tenant, url)


def _taken(name: str) -> Conflict:
    return Conflict(
        f"there is a dashboard {name!r} already", field="name", code="dashboard_name_exist"
    )


def _document(dashboard: Dashboard) -> Document:
    cover = dashboard.cover
    return {
        "_id": dashboard.id,
        "tenant": dashboard.tenant,
        "name": dashboard.name,
        "description": dashboard.description,
        "cover": None if cover is None else msgspec.to_builtins(cover),
        "userId": dashboard.user_id,
        "createdAt": from_ms(dashboard.created_at),
        **stored(dashboard.content),
    }


def _dashboard(document: Document) -> Dashboard:
    cover = document.get("cover")
    return Dashboard(
        id=document["_id"],
        tenant=document["tenant"],
        name=document["name"],
        description=document.get("description"),
        cover=None if cover is None else msgspec.convert(cover, Cover),
        user_id=document.get("userId"),
        content=content_of(document),
        created_at=to_ms(document["createdAt"]),
    )


def _changed(changes: DashboardChanges) -> Document:
    fields: Document = msgspec.to_builtins(changes)
    fields.pop("content", None)
    return fields if changes.content is UNSET else fields | stored(changes.content)


def _texts(document: Document) -> list[str]:
    """Where a dashboard may name resources."""
    cover = (document.get("cover") or {}).get("data", "")
    return [cover, *(widget["data"] for widget in document["widgets"])]
