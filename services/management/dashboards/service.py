"""Creates, changes, lists and deletes dashboards on behalf of users."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from libs.common.clock import now_ms
from libs.common.contracts.names import DescribeDashboards, DescribedDashboard, DescribedDashboards
from libs.common.errors import Forbidden, InvalidInput, NotFound, TooLarge
from libs.common.http.console import id_of, name_of
from libs.common.identity import Principal
from libs.common.identity.sharing import Sharing
from services.management.dashboards.schemas import (
    MAX_BYTES,
    CreateDashboard,
    Dashboard,
    DashboardRef,
    ShownDashboard,
    ShownWidget,
    StoredWidget,
    UpdateDashboard,
    Widget,
)
from services.management.dashboards.store import DashboardStore


class DashboardService:
    """The operations on dashboards."""

    def __init__(
        self, store: DashboardStore, sharing: Sharing, next_id: Callable[[], Awaitable[int]]
    ) -> None:
        self._store = store
        self._sharing = sharing
        self._next_id = next_id

    async def create(self, user: Principal, wanted: CreateDashboard) -> DashboardRef:
        """Add an empty dashboard, which all roles of its creator see.

        The grants come first: should this fail between the two, there is a grant of nothing
        and not a dashboard that its creator cannot see.
        """
        dashboard = Dashboard(
            id=await self._next_id(),
            tenant=user.tenant,
            name=name_of(wanted.name),
            user_id=user.user_id,
            created_at=now_ms(),
        )
        await self._sharing.share(user, dashboard.id)
        try:
            await self._store.insert(dashboard)
        except Exception:
            await self._sharing.forget(user.tenant, [dashboard.id])
            raise
        return DashboardRef(str(dashboard.id))

    async def update(self, user: Principal, dashboard_id: int, wanted: UpdateDashboard) -> None:
        """Set the name and the whole set of widgets; an unknown widget id is passed over."""
        name = name_of(wanted.name)
        dashboard = await self._visible(user, dashboard_id)
        widgets = await self._widgets(dashboard, wanted.widgets)
        if len(msgspec.json.encode(widgets)) > MAX_BYTES:
            raise TooLarge(f"widgets have at most {MAX_BYTES} bytes together", field="widgets")
        if not await self._store.replace(user.tenant, dashboard_id, name, widgets):
            raise _gone(dashboard_id)

    async def delete(self, user: Principal, dashboard_id: int) -> None:
        """Delete a dashboard with its widgets and grants."""
        await self._visible(user, dashboard_id)
        if not await self._store.remove(user.tenant, dashboard_id):
            raise _gone(dashboard_id)
        await self._sharing.forget(user.tenant, [dashboard_id])

    async def seen_by(self, user: Principal) -> list[ShownDashboard]:
        """The dashboards that a user sees, the oldest first."""
        grants = await self._sharing.of(user)
        ids = None if grants.everything else sorted(grants.resources.dashboards)
        return [_shown(one) for one in await self._store.list(user.tenant, ids)]

    async def describe(self, wanted: DescribeDashboards) -> DescribedDashboards:
        """Answer `auth`, which lists dashboards for roles; by name."""
        found = await self._store.list(wanted.tenant, wanted.ids, wanted.keyword)
        return DescribedDashboards(
            [
                DescribedDashboard(
                    id=one.id, name=one.name, created_at=one.created_at, user_id=one.user_id
                )
                for one in sorted(found, key=lambda one: one.name.casefold())
            ]
        )

    async def _visible(self, user: Principal, dashboard_id: int) -> Dashboard:
        grants = await self._sharing.of(user)
        if grants.nothing:
            raise Forbidden("user does not have data permission")
        found = None
        if grants.dashboard(dashboard_id):
            found = await self._store.get(user.tenant, dashboard_id)
        if found is None:
            raise _gone(dashboard_id)
        return found

    async def _widgets(self, dashboard: Dashboard, wanted: Sequence[Widget]) -> list[StoredWidget]:
        known = {widget.id for widget in dashboard.widgets}
        kept: dict[int, StoredWidget] = {}
        for widget in wanted:
            widget_id = id_of(widget.widget_id) if widget.widget_id else await self._next_id()
            if widget_id in kept:
                raise InvalidInput(f"has widget {widget_id} twice", field="widgets")
            if widget_id in known or not widget.widget_id:
                kept[widget_id] = StoredWidget(widget_id, widget.data)
        return list(kept.values())


def _gone(dashboard_id: int) -> NotFound:
    return NotFound(f"dashboard not exist: {dashboard_id}", field="dashboard_id")


def _shown(dashboard: Dashboard) -> ShownDashboard:
    return ShownDashboard(
        dashboard_id=str(dashboard.id),
        name=dashboard.name,
        user_id=None if dashboard.user_id is None else str(dashboard.user_id),
        created_at=str(dashboard.created_at),
        widgets=[ShownWidget(str(widget.id), widget.data) for widget in dashboard.widgets],
    )
