"""Dashboards on the wire, and as kept."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from libs.common.http.console import Shown
from services.management.dashboards.content import (
    CanvasIds,
    Content,
    Name,
    ShownWidget,
    Widget,
)
from services.management.dashboards.covers import Cover

MAX_WIDGETS = 200
"""Most widgets of a dashboard; consoles draw some dozens."""
MAX_BYTES = 4 * 1024 * 1024
"""Most bytes of a canvas's widgets together: older consoles keep icons in them."""

Description = Annotated[str, msgspec.Meta(max_length=64)]
CoverType = Literal["DEFAULT_IMAGE", "RESOURCE"]
CoverData = Annotated[str, msgspec.Meta(max_length=1024)]


class CreateDashboard(msgspec.Struct):
    """Body of `POST /dashboard`."""

    name: Name
    description: Description | None = None
    cover_type: CoverType | None = None
    cover_data: CoverData | None = None


class UpdateDashboard(msgspec.Struct, kw_only=True):
    """Body of `PUT /dashboard/{id}`; what is absent stays.

    `widgets` are all widgets that shall be left: what consoles send that know one canvas.
    """

    name: Name
    description: Description | UnsetType | None = UNSET
    cover_type: CoverType | UnsetType | None = UNSET
    cover_data: CoverData | UnsetType | None = UNSET
    widgets: Annotated[list[Widget], msgspec.Meta(max_length=MAX_WIDGETS)] | UnsetType = UNSET


class SearchDashboards(msgspec.Struct):
    """Body of `POST /dashboard/search`: a part of the name, in any case."""

    name: Annotated[str, msgspec.Meta(max_length=64)] | None = None


class DeleteDashboards(msgspec.Struct):
    """Body of `POST /dashboard/batch-delete`."""

    dashboard_ids: CanvasIds


class MainCanvas(Shown, kw_only=True):
    """A dashboard and its main canvas; empty when there is none to be shown."""

    dashboard_id: str | None = None
    main_canvas_id: str | None = None


class ShownDashboard(Shown, kw_only=True):
    """A dashboard in the list that has widgets."""

    dashboard_id: str
    name: str
    user_id: str | None = None
    created_at: str
    widgets: list[ShownWidget]


class FoundDashboard(Shown, kw_only=True):
    """A dashboard in the list of tiles."""

    dashboard_id: str
    main_canvas_id: str
    name: str
    home: bool
    description: str | None = None
    cover_type: str | None = None
    cover_data: str | None = None
    user_id: str | None = None
    created_at: str


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    """A dashboard as it is kept, with its main canvas, which has its id and its name."""

    id: int
    tenant: str
    name: str
    description: str | None = None
    cover: Cover | None = None
    user_id: int | None = None
    content: Content
    created_at: int
    """ms."""


class DashboardChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What is set of a dashboard; the rest stays."""

    name: str
    description: str | UnsetType | None = UNSET
    cover: Cover | UnsetType | None = UNSET
    content: Content | UnsetType = UNSET
