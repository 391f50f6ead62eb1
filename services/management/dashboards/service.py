"""Operations on dashboards for users."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

from msgspec import UNSET, UnsetType

from libs.common.clock import to_ms
from libs.common.contracts.names import DescribeDashboards, DescribedDashboard, DescribedDashboards
from libs.common.errors import Forbidden, InvalidInput, NotFound, TooLarge
from libs.common.http.console import distinct_ids, parse_name
from libs.common.http.streaming import StreamedAnswer
from libs.common.identity import Principal
from libs.common.identity.grants import Grants, ResourceTypeGrants
from services.management.dashboards.model import (
    UPLOADED,
    AllocateId,
    Cover,
    Dashboard,
    DashboardChanges,
    StoredWidget,
    assign_widget_ids,
    build_cover,
    check_name_length,
)
from services.management.dashboards.schemas import (
    MAX_WIDGETS_BYTES,
    CreateDashboard,
    DashboardResponse,
    DashboardTile,
    DeleteDashboards,
    MainCanvas,
    SearchDashboards,
    UpdateDashboard,
)
from services.management.dashboards.store import DashboardStore

C = TypeVar("C", Cover | None, Cover | UnsetType | None)


class DashboardService:
    """The operations on dashboards."""

    def __init__(
        self, store: DashboardStore, sharing: ResourceTypeGrants, next_id: AllocateId
    ) -> None:
        self._store = store
        self._sharing = sharing
        self._next_id = next_id

    async def create(self, user: Principal, request: CreateDashboard) -> MainCanvas:
        """Create an empty dashboard, which all roles of its creator see.

        The grants are created first, so that a failure between the steps leaves an unused grant and
        not an invisible dashboard.
        """
        dashboard = Dashboard(
            id=await self._next_id(),
            tenant=user.tenant,
            name=check_name_length(parse_name(request.name)),
            description=request.description,
            cover=await self._require_existing_picture(
                user, build_cover(request.cover_type, request.cover_data)
            ),
            user_id=user.user_id,
            created_at=datetime.now(UTC),
        )
        await self._sharing.share(user, dashboard.id)
        try:
            await self._store.insert(dashboard)
        except Exception:
            await self._sharing.forget(user.tenant, [dashboard.id])
            raise
        return _main_canvas_response(dashboard)

    async def update(self, user: Principal, dashboard_id: int, request: UpdateDashboard) -> None:
        """Set the name and other given fields; widgets are replaced."""
        name = parse_name(request.name)
        dashboard = await self.find_visible(user, dashboard_id)
        widgets: tuple[StoredWidget, ...] | UnsetType = UNSET
        if request.widgets is not UNSET:
            widgets = await assign_widget_ids(dashboard, request.widgets, self._next_id)
            if sum(len(widget.data.encode()) for widget in widgets) > MAX_WIDGETS_BYTES:
                raise TooLarge(
                    f"must have at most {MAX_WIDGETS_BYTES} bytes together", field="widgets"
                )
        changes = DashboardChanges(
            name=check_name_length(name, dashboard.name),
            description=request.description,
            cover=await self._require_existing_picture(user, _requested_cover(request)),
            widgets=widgets,
        )
        if not await self._store.update(user.tenant, dashboard_id, changes):
            raise dashboard_not_found(dashboard_id)

    async def delete(self, user: Principal, dashboard_id: int) -> None:
        """Delete a dashboard with its canvases and grants."""
        await self.find_visible(user, dashboard_id)
        if not await self._remove_with_grants(user.tenant, [dashboard_id]):
            raise dashboard_not_found(dashboard_id)

    async def delete_many(self, user: Principal, request: DeleteDashboards) -> None:
        """Delete the dashboards that the user sees; the others are ignored."""
        grants = await self._sharing.read_grants(user)
        ids = [
            dashboard_id
            for dashboard_id in distinct_ids(request.dashboard_ids)
            if grants.allows_dashboard(dashboard_id)
        ]
        if ids:
            await self._remove_with_grants(user.tenant, ids)

    async def stream_visible(self, user: Principal) -> StreamedAnswer[list[DashboardResponse]]:
        """Stream the dashboards that a user sees, the oldest first."""
        dashboards = self._store.iterate_with_widgets(
            user.tenant, _granted_ids(await self._sharing.read_grants(user))
        )
        responses = (
            DashboardResponse.from_fields(
                dashboard,
                dashboard_id=str(dashboard.id),
                widgets=[widget.response for widget in dashboard.widgets],
            )
            async for dashboard in dashboards
        )
        return StreamedAnswer([], responses)

    async def search(self, user: Principal, request: SearchDashboards) -> list[DashboardTile]:
        """Return the dashboards that a user sees: the home first, then the newest."""
        dashboards = await self._list_visible(
            user, await self._sharing.read_grants(user), request.name or ""
        )
        home = await self._store.find_home(user.tenant, user.user_id)
        rows = [
            DashboardTile.from_fields(
                dashboard,
                dashboard_id=str(dashboard.id),
                main_canvas_id=str(dashboard.id),
                home=dashboard.id == home,
                cover_type=dashboard.cover and dashboard.cover.type,
                cover_data=dashboard.cover and dashboard.cover.data,
            )
            for dashboard in reversed(dashboards)
        ]
        return sorted(rows, key=lambda row: not row.home)

    async def get_main_canvas(self, user: Principal) -> MainCanvas:
        """Return the canvas of the user's home, else of the newest visible dashboard.

        Raises `Forbidden` for a user without any grant.
        """
        grants = await self._sharing.read_grants(user)
        if grants.is_empty:
            raise Forbidden("the user does not have data permission", code="no_data_permission")
        dashboards = await self._list_visible(user, grants)
        home = await self._store.find_home(user.tenant, user.user_id)
        chosen = [dashboard for dashboard in dashboards if dashboard.id == home] or dashboards[-1:]
        return _main_canvas_response(chosen[0]) if chosen else MainCanvas()

    async def set_home(self, user: Principal, dashboard_id: int) -> None:
        """Make a dashboard the user's home; raise `NotFound`."""
        await self._find_granted(user, await self._sharing.read_grants(user), dashboard_id)
        await self._store.set_home(user.tenant, user.user_id, dashboard_id)

    async def unset_home(self, user: Principal, dashboard_id: int) -> None:
        """Remove a dashboard as the user's home."""
        await self._find_granted(user, await self._sharing.read_grants(user), dashboard_id)
        await self._store.unset_home(user.tenant, user.user_id, dashboard_id)

    async def describe(self, request: DescribeDashboards) -> DescribedDashboards:
        """Return dashboards sorted by name; `auth` shows them as resources for roles."""
        dashboards = await self._store.list_without_widgets(
            request.tenant, request.ids, request.keyword
        )
        return DescribedDashboards(
            [
                DescribedDashboard(
                    id=dashboard.id,
                    name=dashboard.name,
                    created_at=to_ms(dashboard.created_at),
                    user_id=dashboard.user_id,
                )
                for dashboard in sorted(dashboards, key=lambda dashboard: dashboard.name.casefold())
            ]
        )

    async def find_visible(self, user: Principal, dashboard_id: int) -> Dashboard:
        """Return a dashboard; raise `NotFound`, or `Forbidden` if the user has no grants at all."""
        grants = await self._sharing.read_grants(user)
        if grants.is_empty:
            raise Forbidden("the user does not have data permission")
        return await self._find_granted(user, grants, dashboard_id)

    async def _list_visible(
        self, user: Principal, grants: Grants, keyword: str = ""
    ) -> list[Dashboard]:
        return await self._store.list_without_widgets(user.tenant, _granted_ids(grants), keyword)

    async def _find_granted(self, user: Principal, grants: Grants, dashboard_id: int) -> Dashboard:
        dashboard = None
        if grants.allows_dashboard(dashboard_id):
            dashboard = await self._store.get(user.tenant, dashboard_id)
        if dashboard is None:
            raise dashboard_not_found(dashboard_id)
        return dashboard

    async def _require_existing_picture(self, user: Principal, cover: C) -> C:
        """Return the cover if its picture exists; raise `InvalidInput`."""
        uploaded_url = cover.data if isinstance(cover, Cover) and cover.type == UPLOADED else None
        if uploaded_url is not None and not await self._store.resource_exists(
            user.tenant, uploaded_url
        ):
            raise InvalidInput("must be an uploaded picture that exists", field="cover_data")
        return cover

    async def _remove_with_grants(self, tenant: str, ids: Sequence[int]) -> list[int]:
        removed = await self._store.remove(tenant, ids)
        await self._sharing.forget(tenant, removed)
        return removed


def _granted_ids(grants: Grants) -> list[int] | None:
    """Return the ids of granted dashboards; None for all."""
    return None if grants.everything else sorted(grants.resources.dashboards)


def dashboard_not_found(dashboard_id: int) -> NotFound:
    """Return the error for a dashboard that does not exist, or that the user may not see."""
    return NotFound(f"the dashboard {dashboard_id} does not exist", field="dashboard_id")


def _requested_cover(request: UpdateDashboard) -> Cover | UnsetType | None:
    if request.cover_type is UNSET and request.cover_data is UNSET:
        return UNSET
    kind = None if request.cover_type is UNSET else request.cover_type
    return build_cover(kind, None if request.cover_data is UNSET else request.cover_data)


def _main_canvas_response(dashboard: Dashboard) -> MainCanvas:
    return MainCanvas(dashboard_id=str(dashboard.id), main_canvas_id=str(dashboard.id))
