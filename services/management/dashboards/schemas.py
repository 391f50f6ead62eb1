"""Dashboards on the wire, and as kept."""

from typing import Annotated, Any

import msgspec

from libs.common.http.console import OptionalId, Shown

Name = Annotated[str, msgspec.Meta(max_length=127)]

MAX_WIDGETS = 200
"""Most widgets of a dashboard; consoles draw some dozens."""
MAX_BYTES = 4 * 1024 * 1024
"""Most bytes of a dashboard's widgets together: existing consoles keep icons in them."""


class CreateDashboard(msgspec.Struct):
    """Body of `POST /dashboard`."""

    name: Name


class Widget(msgspec.Struct):
    """One widget; without an id, or with an empty one, it is new. `data` is opaque."""

    data: dict[str, Any]
    widget_id: OptionalId = None


class UpdateDashboard(msgspec.Struct):
    """Body of `PUT /dashboard/{id}`: all widgets that shall be left; to leave none is to say so."""

    name: Name
    widgets: Annotated[list[Widget], msgspec.Meta(max_length=MAX_WIDGETS)]


class DashboardRef(msgspec.Struct):
    """Answer of `POST /dashboard`."""

    dashboard_id: str


class ShownWidget(msgspec.Struct):
    """A widget in a list."""

    widget_id: str
    data: dict[str, Any]


class ShownDashboard(Shown, kw_only=True):
    """A dashboard in a list."""

    dashboard_id: str
    name: str
    user_id: str | None = None
    created_at: str
    widgets: list[ShownWidget]


class StoredWidget(msgspec.Struct, frozen=True):
    """A widget with its id; `data` is what a console wrote."""

    id: int
    data: dict[str, Any]


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    """A dashboard as it is kept."""

    id: int
    tenant: str
    name: str
    user_id: int | None
    widgets: tuple[StoredWidget, ...] = ()
    created_at: int
    """ms."""
