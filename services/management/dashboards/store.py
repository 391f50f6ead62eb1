"""Dashboards and canvases in MongoDB; a dashboard's document includes its main canvas.

- `dashboards`: `{_id, tenant, name, description?, cover?: {type, data}, userId?, createdAt}` and
the fields of `CanvasContent`.
- `canvases`: `{_id, tenant, name, attachType, attachId, createdAt}` and the fields of
`CanvasContent`. A device has at most one canvas.
- `home_dashboards`: `{_id, tenant, dashboard}`, where `_id` is a user.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from pymongo import ReturnDocument

from libs.common.errors import Conflict
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import LimitsCache
from libs.common.store.mongo import (
    Document,
    Mongo,
    Session,
    build_text_condition,
    raise_on_duplicate,
    read_document,
    to_document,
)
from services.management.dashboards.model import (
    Canvas,
    CanvasContent,
    Dashboard,
    DashboardChanges,
    OwnerType,
)
from services.management.resources import ResourceStore


class CanvasStore:
    """The collection `canvases`."""

    def __init__(self, mongo: Mongo, resources: ResourceStore) -> None:
        self._mongo = mongo
        self._canvases = mongo.database["canvases"]
        self._resources = resources

    async def get(self, tenant: str, canvas_id: int) -> Canvas | None:
        """Return an additional canvas of a dashboard, or a canvas of a device, or None."""
        document = await self._canvases.find_one({"_id": canvas_id, "tenant": tenant})
        return read_document(document, Canvas)

    async def list_dashboard_canvases(self, tenant: str, dashboard_id: int) -> list[Canvas]:
        """Return the additional canvases of a dashboard, the oldest first, without widgets."""
        query = _owner_query(tenant, "DASHBOARD", [dashboard_id])
        cursor = self._canvases.find(query, {"widgets": 0}, sort=[("_id", 1)])
        return [msgspec.convert(document, Canvas) async for document in cursor]

    async def find_device_canvas(self, tenant: str, device_id: int) -> Canvas | None:
        """Return the canvas of a device without widgets, or None."""
        query = _owner_query(tenant, "DEVICE", [device_id])
        document = await self._canvases.find_one(query, {"widgets": 0})
        return read_document(document, Canvas)

    async def insert(self, canvas: Canvas) -> None:
        """Insert a canvas; raise `DuplicateKey` if its device has one."""
        await self._canvases.insert_one(to_document(canvas))

    async def update(self, tenant: str, canvas_id: int, name: str, content: CanvasContent) -> bool:
        """Set name and content; return False if the canvas does not exist."""

        async def set_content(session: Session) -> bool:
            outcome = await self._canvases.update_one(
                {"_id": canvas_id, "tenant": tenant},
                {"$set": {"name": name, **to_document(content)}},
                session=session,
            )
            if not outcome.matched_count:
                return False
            texts = [widget.data for widget in content.widgets]
            await self._resources.update_references(tenant, canvas_id, texts, session)
            return True

        return await self._mongo.transaction(set_content)

    async def remove(self, tenant: str, dashboard_id: int, ids: Sequence[int]) -> None:
        """Delete canvases of a dashboard."""
        query = _owner_query(tenant, "DASHBOARD", [dashboard_id]) | {"_id": {"$in": list(ids)}}
        await self._mongo.transaction(lambda session: self._remove(tenant, query, session))

    async def remove_dashboard_canvases(
        self, tenant: str, ids: Sequence[int], session: Session
    ) -> None:
        """Delete the canvases of dashboards, in the transaction that deletes the dashboards."""
        await self._remove(tenant, _owner_query(tenant, "DASHBOARD", ids), session)

    async def remove_device_canvases(self, tenant: str, ids: Sequence[int]) -> None:
        """Delete the canvases of devices."""
        query = _owner_query(tenant, "DEVICE", ids)
        await self._mongo.transaction(lambda session: self._remove(tenant, query, session))

    async def _remove(self, tenant: str, query: Document, session: Session) -> None:
        cursor = self._canvases.find(query, {"_id": 1}, session=session)
        ids = [document["_id"] async for document in cursor]
        if ids:
            removed: Document = {"tenant": tenant, "_id": {"$in": ids}}
            await self._canvases.delete_many(removed, session=session)
            await self._resources.remove_references(tenant, ids, session)


class DashboardStore:
    """The collections `dashboards` and `home_dashboards`."""

    def __init__(
        self, mongo: Mongo, limits: LimitsCache, canvases: CanvasStore, resources: ResourceStore
    ) -> None:
        self._mongo = mongo
        self._dashboards = mongo.database["dashboards"]
        self._homes = mongo.database["home_dashboards"]
        self._quota = Quota(self._dashboards, limits, "records")
        self._canvases = canvases
        self._resources = resources

    async def insert(self, dashboard: Dashboard) -> None:
        """Insert a dashboard; raise `Conflict` if the tenant has one with its name.

        Raises `TooManyRequests` if the tenant has reached its limit.
        """
        await self._quota.reserve(dashboard.tenant)

        async def insert_one(session: Session) -> None:
            document = to_document(dashboard)
            await self._dashboards.insert_one(document, session=session)
            await self._resources.update_references(
                dashboard.tenant, dashboard.id, _resource_search_texts(document), session
            )

        with raise_on_duplicate(_duplicate_name_error(dashboard.name)):
            await self._mongo.transaction(insert_one)

    async def get(self, tenant: str, dashboard_id: int) -> Dashboard | None:
        """Return a dashboard of a tenant, or None."""
        document = await self._dashboards.find_one({"_id": dashboard_id, "tenant": tenant})
        return read_document(document, Dashboard)

    async def update(self, tenant: str, dashboard_id: int, changes: DashboardChanges) -> bool:
        """Set the fields of `changes`; return False if the dashboard does not exist.

        Raises `Conflict` if the tenant has another dashboard with the name.
        """

        async def set_fields(session: Session) -> bool:
            document = await self._dashboards.find_one_and_update(
                {"_id": dashboard_id, "tenant": tenant},
                {"$set": to_document(changes)},
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            if document is None:
                return False
            await self._resources.update_references(
                tenant, dashboard_id, _resource_search_texts(document), session
            )
            return True

        with raise_on_duplicate(_duplicate_name_error(changes.name)):
            return await self._mongo.transaction(set_fields)

    async def remove(self, tenant: str, ids: Sequence[int]) -> list[int]:
        """Delete dashboards with their canvases and homes; return those of `ids` that existed."""

        async def delete(session: Session) -> list[int]:
            query: Document = {"_id": {"$in": list(ids)}, "tenant": tenant}
            cursor = self._dashboards.find(query, {"_id": 1}, session=session)
            removed = [document["_id"] async for document in cursor]
            await self._dashboards.delete_many(query, session=session)
            await self._homes.delete_many(
                {"tenant": tenant, "dashboard": {"$in": removed}}, session=session
            )
            await self._resources.remove_references(tenant, removed, session)
            await self._canvases.remove_dashboard_canvases(tenant, removed, session)
            return removed

        return await self._mongo.transaction(delete)

    async def list_without_widgets(
        self, tenant: str, ids: Sequence[int] | None = None, keyword: str = ""
    ) -> list[Dashboard]:
        """Return dashboards of a tenant without widgets, filtered, the oldest first."""
        query: dict[str, Any] = {"tenant": tenant}
        if ids is not None:
            query["_id"] = {"$in": list(ids)}
        if keyword:
            query["name"] = build_text_condition(keyword, "name")
        cursor = self._dashboards.find(query, {"widgets": 0}, sort=[("createdAt", 1), ("_id", 1)])
        return [msgspec.convert(document, Dashboard) async for document in cursor]

    async def iterate_with_widgets(
        self, tenant: str, ids: Sequence[int] | None = None
    ) -> AsyncGenerator[Dashboard, None]:
        """Yield dashboards with their widgets one by one, because each may have 4 MiB."""
        for listed in await self.list_without_widgets(tenant, ids):
            if (dashboard := await self.get(tenant, listed.id)) is not None:
                yield dashboard

    # The home of a user: the dashboard that the console opens first.

    async def find_home(self, tenant: str, user_id: int) -> int | None:
        """Return the dashboard id of a user's home, or None. The dashboard may be deleted."""
        document = await self._homes.find_one({"_id": user_id, "tenant": tenant})
        return None if document is None else int(document["dashboard"])

    async def set_home(self, tenant: str, user_id: int, dashboard_id: int) -> None:
        """Make a dashboard the home of a user, in place of any other."""
        await self._homes.update_one(
            {"_id": user_id, "tenant": tenant}, {"$set": {"dashboard": dashboard_id}}, upsert=True
        )

    async def unset_home(self, tenant: str, user_id: int, dashboard_id: int) -> None:
        """Remove the home of a user, if it is this dashboard."""
        await self._homes.delete_one({"_id": user_id, "tenant": tenant, "dashboard": dashboard_id})

    async def remove_homes(self, tenant: str, users: Sequence[int]) -> None:
        """Forget which dashboards are the homes of users."""
        await self._homes.delete_many({"tenant": tenant, "_id": {"$in": list(users)}})

    async def resource_exists(self, tenant: str, url: str) -> bool:
        """Return whether a URL belongs to a resource of the tenant."""
        return await self._resources.has(tenant, url)


def _duplicate_name_error(name: str) -> Conflict:
    return Conflict(
        f"a dashboard {name!r} exists already", field="name", code="dashboard_name_exist"
    )


def _owner_query(tenant: str, kind: OwnerType, ids: Sequence[int]) -> Document:
    return {"tenant": tenant, "attachType": kind, "attachId": {"$in": list(ids)}}


def _resource_search_texts(document: Document) -> list[str]:
    """Return the texts in which a dashboard may refer to resources."""
    cover = (document.get("cover") or {}).get("data", "")
    return [cover, *(widget["data"] for widget in document["widgets"])]
