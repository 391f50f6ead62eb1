"""Stored dashboards and canvases, their widgets and covers.

The main canvas of a dashboard is part of the dashboard's document; every other canvas has its own
document. Both have the content `{widgets: [{id, data}], entityIds, deviceIds}`. `data` is JSON
text, because the console chooses its keys, which may be special in MongoDB.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from libs.common.decoding import copy_fields
from libs.common.errors import InvalidInput
from libs.common.http.ids import Id, OptionalId
from libs.common.store.mongo import Stored

AllocateId = Callable[[], Awaitable[int]]
"""Allocates ids of dashboards, canvases and widgets, which share a sequence."""
MAX_NAME_CHARACTERS = 64
"""Maximum characters of a name; longer names that exist may be kept (see `check_name_length`)."""
Name = Annotated[str, msgspec.Meta(max_length=255)]
IdsToDelete = Annotated[list[Id], msgspec.Meta(min_length=1, max_length=1000)]
OwnerType = Literal["DASHBOARD", "DEVICE"]
PRESET, UPLOADED = "DEFAULT_IMAGE", "RESOURCE"
_COVER_NAMES = ("Purple", "Blue", "Green", "Yellow", "City", "Building", "Field", "Plant")
"""Names of preset covers; consoles preselect Purple."""


class Widget(msgspec.Struct):
    """A widget; without an id, or with an empty one, it is new. `data` is opaque."""

    data: dict[str, Any]
    widget_id: OptionalId = None
    """Id of the widget. Absent for a new one."""


class WidgetResponse(msgspec.Struct):
    """A widget in an answer."""

    widget_id: str
    """Id of the widget."""
    data: dict[str, Any]


class StoredWidget(msgspec.Struct, frozen=True):
    """A widget with its id; `data` is the console's data as JSON text."""

    id: int
    data: str

    @property
    def response(self) -> WidgetResponse:
        """Return the widget for a response, with its JSON text unparsed."""
        return WidgetResponse(str(self.id), cast("dict[str, Any]", msgspec.Raw(self.data.encode())))


class CanvasContent(Stored, frozen=True):
    """The content of a canvas."""

    widgets: tuple[StoredWidget, ...] = ()
    entity_ids: tuple[int, ...] = ()
    device_ids: tuple[int, ...] = ()


async def assign_widget_ids(
    before: CanvasContent, widgets: Sequence[Widget], next_id: AllocateId
) -> tuple[StoredWidget, ...]:
    """Return the requested widgets with their ids; widgets with unknown ids are ignored.

    Raises `InvalidInput` for duplicates.
    """
    stored_ids = {widget.id for widget in before.widgets}
    result: dict[int, StoredWidget] = {}
    for widget in widgets:
        widget_id = widget.widget_id or await next_id()
        if widget_id in result:
            raise InvalidInput(f"must not have widget {widget_id} twice", field="widgets")
        if widget_id in stored_ids or not widget.widget_id:
            data = msgspec.json.encode(widget.data).decode()
            result[widget_id] = StoredWidget(widget_id, data)
    return tuple(result.values())


def check_name_length(name: str, before: str = "") -> str:
    """Return `name` if it is short enough, or equals `before`; raise `InvalidInput`."""
    if len(name) > MAX_NAME_CHARACTERS and name != before:
        raise InvalidInput(f"must have at most {MAX_NAME_CHARACTERS} characters", field="name")
    return name


class Cover(msgspec.Struct, frozen=True):
    """The picture of a dashboard: a preset, or the URL of an uploaded resource."""

    type: str
    data: str


class PresetCover(msgspec.Struct):
    """A preset cover; `data` is its path."""

    id: str
    name: str
    type: str
    data: str
    ordered: int
    """Sort order: lower numbers first."""


PRESET_COVERS = [
    PresetCover(
        id=str(at),
        name=name,
        type=PRESET,
        data=f"public/cover-{name.lower()}.svg",
        ordered=at * 10_000,
    )
    for at, name in enumerate(_COVER_NAMES, 1)
]
_PRESET_COVER_PATHS = frozenset(preset.data for preset in PRESET_COVERS)


def build_cover(kind: str | None, data: str | None) -> Cover | None:
    """Return the requested cover, None without a request; raise `InvalidInput`."""
    if kind is None and not data:
        return None
    if kind is None:
        raise InvalidInput("is required with cover_data", field="cover_type")
    if not data:
        raise InvalidInput("is required with cover_type", field="cover_data")
    if kind == PRESET and data not in _PRESET_COVER_PATHS:
        raise InvalidInput(
            "must be one of /dashboard/covers",
            field="cover_data",
            code="dashboard_preset_cover_not_exist",
        )
    return Cover(kind, data)


class Canvas(CanvasContent, frozen=True, kw_only=True):
    """A canvas with its content."""

    id: int
    tenant: str
    name: str
    attach_type: OwnerType
    attach_id: int
    created_at: datetime

    @property
    def is_main(self) -> bool:
        """Return whether the canvas is the main canvas of a dashboard."""
        return self.attach_type == "DASHBOARD" and self.attach_id == self.id


class Dashboard(CanvasContent, frozen=True, kw_only=True):
    """A dashboard with the content of its main canvas, which has the same id and name."""

    id: int
    tenant: str
    name: str
    description: str | None = None
    cover: Cover | None = None
    user_id: int | None = None
    created_at: datetime

    @property
    def main_canvas(self) -> Canvas:
        """Return the canvas that is part of the dashboard's document."""
        return copy_fields(Canvas, self, attach_type="DASHBOARD", attach_id=self.id)


class DashboardChanges(Stored, frozen=True, kw_only=True):
    """Changed fields of a dashboard; unset fields keep their values."""

    name: str
    description: str | UnsetType | None = UNSET
    cover: Cover | UnsetType | None = UNSET
    widgets: tuple[StoredWidget, ...] | UnsetType = UNSET
    entity_ids: tuple[int, ...] | UnsetType = UNSET
    device_ids: tuple[int, ...] | UnsetType = UNSET
