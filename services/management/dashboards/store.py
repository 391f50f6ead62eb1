"""Dashboards in MongoDB: one document each, with its widgets.

`dashboards`: `{_id, tenant, name, userId?, widgets: [{id, data}], createdAt}`. `data` is kept
as JSON text: its keys are a console's own and may be such as MongoDB gives a meaning.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from libs.common.clock import from_ms, to_ms
from libs.common.errors import Conflict
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import KnownLimits
from libs.common.store.mongo import Database, DuplicateKey, containing
from services.management.dashboards.schemas import Dashboard, StoredWidget


class DashboardStore:
    """The collection `dashboards`."""

    def __init__(self, database: Database, limits: KnownLimits) -> None:
        self._dashboards = database["dashboards"]
        self._quota = Quota(self._dashboards, limits, "records")

    async def insert(self, dashboard: Dashboard) -> None:
        """Add a dashboard; raise `Conflict` when the tenant has one of that name.

        Raises `TooManyRequests` when the tenant has as many as it may.
        """
        await self._quota.take(dashboard.tenant)
        try:
            await self._dashboards.insert_one(
                {
                    "_id": dashboard.id,
                    "tenant": dashboard.tenant,
                    "name": dashboard.name,
                    "userId": dashboard.user_id,
                    "widgets": [],
                    "createdAt": from_ms(dashboard.created_at),
                }
            )
        except DuplicateKey as error:
            raise _taken(dashboard.name) from error

    async def get(self, tenant: str, dashboard_id: int) -> Dashboard | None:
        """One dashboard of a tenant."""
        document = await self._dashboards.find_one({"_id": dashboard_id, "tenant": tenant})
        return None if document is None else _dashboard(document)

    async def replace(
        self, tenant: str, dashboard_id: int, name: str, widgets: Sequence[StoredWidget]
    ) -> bool:
        """Set name and widgets; False when it is gone."""
        content = [
            {"id": widget.id, "data": msgspec.json.encode(widget.data).decode()}
            for widget in widgets
        ]
        try:
            outcome = await self._dashboards.update_one(
                {"_id": dashboard_id, "tenant": tenant},
                {"$set": {"name": name, "widgets": content}},
            )
        except DuplicateKey as error:
            raise _taken(name) from error
        return bool(outcome.matched_count)

    async def remove(self, tenant: str, dashboard_id: int) -> bool:
        """Delete a dashboard; False when it was gone."""
        outcome = await self._dashboards.delete_one({"_id": dashboard_id, "tenant": tenant})
        return bool(outcome.deleted_count)

    async def list(
        self, tenant: str, ids: Sequence[int] | None = None, keyword: str = ""
    ) -> list[Dashboard]:
        """Dashboards of a tenant by age, all or those of `ids` whose name has `keyword`."""
        query: dict[str, Any] = {"tenant": tenant}
        if ids is not None:
            query["_id"] = {"$in": list(ids)}
        if keyword:
            query["name"] = containing(keyword)
        found = self._dashboards.find(query).sort([("createdAt", 1), ("_id", 1)])
        return [_dashboard(document) async for document in found]


def _taken(name: str) -> Conflict:
    return Conflict(
        f"there is a dashboard {name!r} already", field="name", code="dashboard_name_exist"
    )


def _dashboard(document: dict[str, Any]) -> Dashboard:
    return Dashboard(
        id=document["_id"],
        tenant=document["tenant"],
        name=document["name"],
        user_id=document.get("userId"),
        widgets=tuple(
            StoredWidget(widget["id"], msgspec.json.decode(widget["data"]))
            for widget in document["widgets"]
        ),
        created_at=to_ms(document["createdAt"]),
    )
