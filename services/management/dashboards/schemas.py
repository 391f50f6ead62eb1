"""Requests and answers about dashboards and canvases."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from libs.common.contracts.names import MAX_DESCRIBED_DEVICES
from libs.common.http.console import ResponseModel
from libs.common.http.ids import Id
from libs.common.things import AccessMod, EntityType, ValueType
from services.management.dashboards.model import (
    IdsToDelete,
    Name,
    OwnerType,
    Widget,
    WidgetResponse,
)

MAX_DASHBOARD_UPDATE_WIDGETS = 200
"""Maximum widgets of `PUT /dashboard/{id}`; consoles render some dozens."""
MAX_WIDGETS_BYTES = 4 * 1024 * 1024
"""Maximum bytes of all widgets of a canvas, which may contain icons of older consoles."""
MAX_CANVAS_WIDGETS = 120
MAX_CANVAS_ENTITIES = 1000
MAX_WIDGET_CHARACTERS = 50 * 1024
"""Maximum characters of a widget's data as JSON text."""
MAX_ADDITIONAL_CANVASES = 20
"""Maximum canvases of a dashboard in addition to its main one."""

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
    """Body of `PUT /dashboard/{id}`; absent fields keep their values.

    `widgets` replaces all widgets, for consoles that support a single canvas.
    """

    name: Name
    description: Description | UnsetType | None = UNSET
    cover_type: CoverType | UnsetType | None = UNSET
    cover_data: CoverData | UnsetType | None = UNSET
    widgets: (
        Annotated[list[Widget], msgspec.Meta(max_length=MAX_DASHBOARD_UPDATE_WIDGETS)] | UnsetType
    ) = UNSET


class SearchDashboards(msgspec.Struct):
    """Body of `POST /dashboard/search`: a part of the name, ignoring case."""

    name: Annotated[str, msgspec.Meta(max_length=64)] | None = None


class DeleteDashboards(msgspec.Struct):
    """Body of `POST /dashboard/batch-delete`."""

    dashboard_ids: IdsToDelete
    """Ids of dashboards."""


class MainCanvas(ResponseModel, kw_only=True):
    """A dashboard and its main canvas; empty if the caller sees none."""

    dashboard_id: str | None = None
    main_canvas_id: str | None = None


class DashboardResponse(ResponseModel, kw_only=True):
    """A dashboard with its widgets in a list."""

    dashboard_id: str
    name: str
    user_id: str | None = None
    created_at: str
    widgets: list[WidgetResponse]


class DashboardTile(ResponseModel, kw_only=True):
    """A dashboard in a list of tiles."""

    dashboard_id: str
    main_canvas_id: str
    name: str
    home: bool
    """Whether the dashboard is the home page of the caller."""
    description: str | None = None
    cover_type: str | None = None
    cover_data: str | None = None
    user_id: str | None = None
    created_at: str


class SaveCanvas(msgspec.Struct, kw_only=True):
    """Body of `PUT /canvas/{canvas_id}`: all widgets, and the entities and devices they show."""

    name: Name
    widgets: Annotated[list[Widget], msgspec.Meta(max_length=MAX_CANVAS_WIDGETS)]
    entity_ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_CANVAS_ENTITIES)] | None = None
    device_ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_DESCRIBED_DEVICES)] | None = None


class CreateCanvas(msgspec.Struct):
    """Body of `POST /dashboard/{dashboard_id}/canvas`."""

    name: Name


class DeleteCanvases(msgspec.Struct):
    """Body of `POST /dashboard/{dashboard_id}/canvas/batch-delete`."""

    canvas_ids: IdsToDelete
    """Ids of canvases."""


class CanvasEntity(ResponseModel, kw_only=True):
    """An entity that widgets show."""

    entity_id: str
    entity_key: str
    entity_name: str
    entity_type: EntityType
    entity_value_type: ValueType
    entity_value_attribute: dict[str, Any]
    entity_access_mod: AccessMod | None = None
    device_name: str | None = None


class CanvasResponse(ResponseModel, kw_only=True):
    """Answer of `GET /canvas/{canvas_id}`; `entities` are those that the caller sees."""

    id: str
    name: str
    attach_type: OwnerType
    """Whether the canvas belongs to a dashboard or a device."""
    attach_id: str
    """Id of the dashboard or device."""
    widgets: list[WidgetResponse]
    entity_ids: list[str]
    entities: list[CanvasEntity]
    device_ids: list[str]


class CanvasSummary(ResponseModel, kw_only=True):
    """A canvas in the list of a dashboard's canvases; `canvas_id` equals `id`."""

    id: str
    canvas_id: str
    name: str
    attach_type: OwnerType
    """Whether the canvas belongs to a dashboard or a device."""
    attach_id: str
    """Id of the dashboard or device."""
    is_main: bool
    """Whether the canvas opens first."""
