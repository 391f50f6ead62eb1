"""Flows as they are kept, and what is told of them. No I/O."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated

import msgspec

from libs.common.http.console import Ids, PageRequest, Shown
from libs.common.http.ids import OptionalId
from libs.common.store.mongo import Session
from services.workflow.graph.design import DesignNode
from services.workflow.runs.model import Deployed

AfterWrite = Callable[[Session], Awaitable[None]]
"""What else belongs into the transaction of a write."""
Name = Annotated[str, msgspec.Meta(max_length=127)]
Remark = Annotated[str, msgspec.Meta(max_length=1000)]


class Flow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A flow with its newest design, as it is stored."""

    id: int = msgspec.field(name="_id")
    tenant: str
    name: str
    remark: str
    enabled: bool
    version: int
    """Of the newest design, from 1; older ones are kept."""
    design: str = ""
    """`design_data`, as it was saved; empty in a list."""
    user_id: int | None
    """Who made it."""
    created_at: datetime
    updated_at: datetime
    stopped: str | None = None
    """Why the engine disabled it; None since somebody has enabled it."""


class Deployments:
    """Told what becomes of flows; one for each kind of trigger that keeps something.

    Each is told of all flows, also of those with another entry: a flow may have had its own
    until now. All calls may come again with the same content.
    """

    async def prepare(self, flow: Flow, entry: DesignNode) -> None:
        """Before a flow is stored, or stored anew: make what must be there with it.

        `entry` is that of a design with exactly one; its parameters are not checked yet.
        Raises what the user shall see; then nothing is stored.
        """

    async def apply(
        self, tenant: str, flow_id: int, deployed: Deployed | None, session: Session
    ) -> None:
        """In the transaction that stores the flow: it runs from now on, or (None) no longer."""

    async def changed(self, tenant: str, flow_id: int) -> None:
        """After that transaction, and only in this replica (tell the others)."""

    async def forget(self, tenant: str, flow_id: int) -> None:
        """After a flow was deleted: remove what `prepare` made."""


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
