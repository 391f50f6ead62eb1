"""Flows on the wire."""

from typing import Annotated

import msgspec

from libs.common.http.console import Ids, PageRequest, Shown
from libs.common.http.ids import OptionalId

Name = Annotated[str, msgspec.Meta(max_length=127)]
Remark = Annotated[str, msgspec.Meta(max_length=1000)]


class SearchFlows(PageRequest, kw_only=True):
    """Body of `POST /workflow/flows/search`; an empty name means all."""

    name: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    enabled: bool | None = None


class UpdateFlow(msgspec.Struct):
    """Body of `PUT /workflow/flows/{id}`: both are overwritten, and have to be there."""

    name: Name
    remark: Remark


class DeleteFlows(msgspec.Struct):
    """Body of `POST /workflow/flows/batch-delete`."""

    workflow_id_list: Ids


class SaveDesign(msgspec.Struct, kw_only=True):
    """Body of `POST /workflow/flows/design`; without an id and a version it is a new flow."""

    name: Name
    id: OptionalId = None
    version: Annotated[int, msgspec.Meta(ge=0, le=2**31)] | None = None
    enabled: bool | None = None
    """What is left out stays as it is; a new flow is disabled."""
    remark: Remark | None = None
    design_data: str | None = None


class SavedDesign(msgspec.Struct):
    """Answer of a save; both spellings of the id."""

    id: str
    flow_id: str
    version: int


class ShownFlow(Shown, kw_only=True):
    """A flow in a list; times in ms."""

    id: str
    name: str
    remark: str
    enabled: bool
    stopped: str | None = None
    """Why it disabled itself; absent when somebody did, or it is enabled."""
    user_nickname: str | None = None
    created_at: int
    updated_at: int


class FlowVersion(Shown, kw_only=True):
    """A version of a flow's design that can be asked for."""

    version: int
    saved_at: int | None = None
    """ms; absent when the version before it is kept no longer."""


class ShownDesign(Shown, kw_only=True):
    """A design. `version` is that of the newest one, which the next save has to name."""

    id: str
    name: str
    remark: str
    enabled: bool
    stopped: str | None = None
    """As in lists."""
    version: int
    design_data: str
