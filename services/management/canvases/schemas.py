"""Canvases on the wire, and as kept."""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.contracts.names import MOST_DEVICES
from libs.common.http.console import Shown
from libs.common.http.ids import Id
from libs.common.things import AccessMod, EntityType, ValueType
from services.management.dashboards.content import (
    CanvasIds,
    Content,
    Name,
    ShownWidget,
    Widget,
)

MAX_WIDGETS = 120
MAX_ENTITIES = 1000
LARGEST_WIDGET = 50 * 1024
"""Characters of a widget's data as JSON text."""
MOST_CANVASES = 20
"""Most canvases of a dashboard besides its main one."""

AttachType = Literal["DASHBOARD", "DEVICE"]


class SaveCanvas(msgspec.Struct, kw_only=True):
    """Body of `PUT /canvas/{canvas_id}`: all widgets that shall be left, and what they show."""

    name: Name
    widgets: Annotated[list[Widget], msgspec.Meta(max_length=MAX_WIDGETS)]
    entity_ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_ENTITIES)] | None = None
    device_ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_DEVICES)] | None = None


class NameCanvas(msgspec.Struct):
    """Body of `POST /dashboard/{dashboard_id}/canvas`."""

    name: Name


class DeleteCanvases(msgspec.Struct):
    """Body of `POST /dashboard/{dashboard_id}/canvas/batch-delete`."""

    canvas_ids: CanvasIds


class CanvasEntity(Shown, kw_only=True):
    """An entity that widgets show, as they draw it."""

    entity_id: str
    entity_key: str
    entity_name: str
    entity_type: EntityType
    entity_value_type: ValueType
    entity_value_attribute: dict[str, Any]
    entity_access_mod: AccessMod | None = None
    device_name: str | None = None


class ShownCanvas(msgspec.Struct, kw_only=True):
    """Answer of `GET /canvas/{canvas_id}`; `entities` are those that the caller sees."""

    id: str
    name: str
    attach_type: AttachType
    attach_id: str
    widgets: list[ShownWidget]
    entity_ids: list[str]
    entities: list[CanvasEntity]
    device_ids: list[str]


class CanvasOfDashboard(Shown, kw_only=True):
    """A canvas in the list of a dashboard's; `canvas_id` repeats `id`."""

    id: str
    canvas_id: str
    name: str
    attach_type: AttachType
    attach_id: str
    is_main: bool


class Canvas(msgspec.Struct, frozen=True, kw_only=True):
    """A canvas as it is kept."""

    id: int
    tenant: str
    name: str
    attach_type: AttachType
    attach_id: int
    content: Content

    @property
    def is_main(self) -> bool:
        """Whether it is the main canvas of a dashboard, which is that dashboard."""
        return self.attach_type == "DASHBOARD" and self.attach_id == self.id
