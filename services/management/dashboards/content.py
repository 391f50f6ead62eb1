"""What lies on a canvas: widgets, and the entities and devices that they show.

The main canvas of a dashboard is the dashboard's own document, every other canvas one of its
own; both hold their content as `{widgets: [{id, data}], entityIds, deviceIds}`. `data` is kept as
JSON text: its keys are a console's own and may be such as MongoDB gives a meaning.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, cast

import msgspec

from libs.common.errors import InvalidInput
from libs.common.http.ids import Id, OptionalId
from libs.common.store.mongo import Document

NextId = Callable[[], Awaitable[int]]
"""Of dashboards, canvases and widgets: one sequence."""
LONGEST_NAME = 64
"""Characters of a name; one that was longer before may stay (see `checked_name`)."""
Name = Annotated[str, msgspec.Meta(max_length=255)]


class Widget(msgspec.Struct):
    """One widget; without an id, or with an empty one, it is new. `data` is opaque."""

    data: dict[str, Any]
    widget_id: OptionalId = None


class ShownWidget(msgspec.Struct):
    """A widget in an answer."""

    widget_id: str
    data: dict[str, Any]


class StoredWidget(msgspec.Struct, frozen=True):
    """A widget with its id; `data` is what a console wrote, as JSON text."""

    id: int
    data: str

    @property
    def shown(self) -> ShownWidget:
        """The widget as consoles have it; its data goes out as it is stored."""
        return ShownWidget(str(self.id), cast("dict[str, Any]", msgspec.Raw(self.data.encode())))


class Content(msgspec.Struct, frozen=True, rename="camel"):
    """All that lies on a canvas."""

    widgets: tuple[StoredWidget, ...] = ()
    entity_ids: tuple[int, ...] = ()
    device_ids: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the widgets."""
        return sum(len(widget.data.encode()) for widget in self.widgets)


def content_of(document: Document) -> Content:
    """The content of a document that has one."""
    return msgspec.convert(document, Content)


def stored(content: Content) -> Document:
    """The fields that hold a content."""
    fields: Document = msgspec.to_builtins(content)
    return fields


async def placed(
    before: Content, wanted: Sequence[Widget], next_id: NextId
) -> tuple[StoredWidget, ...]:
    """The whole set of widgets; an unknown widget id is passed over.

    Raises `InvalidInput` for a widget that comes twice.
    """
    known = {widget.id for widget in before.widgets}
    kept: dict[int, StoredWidget] = {}
    for widget in wanted:
        widget_id = widget.widget_id or await next_id()
        if widget_id in kept:
            raise InvalidInput(f"has widget {widget_id} twice", field="widgets")
        if widget_id in known or not widget.widget_id:
            data = msgspec.json.encode(widget.data).decode()
            kept[widget_id] = StoredWidget(widget_id, data)
    return tuple(kept.values())


def checked_name(name: str, before: str = "") -> str:
    """`name` when it is not too long, or is the one from `before`; raise `InvalidInput`."""
    if len(name) > LONGEST_NAME and name != before:
        raise InvalidInput(f"must have at most {LONGEST_NAME} characters", field="name")
    return name


CanvasIds = Annotated[list[Id], msgspec.Meta(min_length=1, max_length=1000)]
