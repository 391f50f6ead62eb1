"""Flows as stored, and their requests and responses. No I/O."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated

import msgspec

from libs.common.http.console import Ids, PageRequest, ResponseModel
from libs.common.http.ids import OptionalId
from libs.common.store.mongo import Session
from services.workflow.graph.design import DesignNode
from services.workflow.runs.model import DeployedFlow

TransactionStep = Callable[[Session], Awaitable[None]]
"""Further writes in the transaction that stores a flow."""
Name = Annotated[str, msgspec.Meta(max_length=127)]
Remark = Annotated[str, msgspec.Meta(max_length=1000)]


class Flow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A flow with its latest design, as stored."""

    id: int = msgspec.field(name="_id")
    tenant: str
    name: str
    remark: str
    enabled: bool
    version: int
    """Version of the latest design, from 1. Older ones are stored separately."""
    design: str = ""
    """`design_data` with marks in place of secrets (`vault`); empty in lists."""
    user_id: int | None
    """Id of the author."""
    created_at: datetime
    updated_at: datetime
    stopped: str | None = None
    """Reason why the engine disabled it; None after a user enabled it."""


class DeploymentObserver:
    """Base of the parts of triggers that are notified of stored and deleted flows.

    Each observer is notified of all flows, because an earlier version of a flow may have started
    with another type of entry. All methods are idempotent.
    """

    async def prepare_entry(self, flow: Flow, entry: DesignNode) -> None:
        """Create what a trigger needs before a flow is stored.

        `entry` is the only entry of the design; its parameters are not validated yet. An exception
        is shown to the user and prevents the write.
        """

    async def write_deployment(
        self, tenant: str, flow_id: int, deployed: DeployedFlow | None, session: Session
    ) -> None:
        """Deploy a flow (or None: undeploy it) in the transaction that stores it."""

    async def handle_stored(self, tenant: str, flow_id: int) -> None:
        """Handle a committed change in this replica; other replicas are not notified."""

    async def handle_deleted(self, tenant: str, flow_id: int) -> None:
        """Delete what `prepare_entry` created, after a flow was deleted."""


class SearchFlows(PageRequest, kw_only=True):
    """Body of `POST /workflow/flows/search`. An empty name matches all flows."""

    name: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    enabled: bool | None = None
    """True for enabled flows, false for disabled ones."""


class UpdateFlow(msgspec.Struct):
    """Body of `PUT /workflow/flows/{id}`. Both fields are required."""

    name: Name
    remark: Remark


class DeleteFlows(msgspec.Struct):
    """Body of `POST /workflow/flows/batch-delete`."""

    workflow_id_list: Ids
    """Ids of flows."""


class SaveDesign(msgspec.Struct, kw_only=True):
    """Body of `POST /workflow/flows/design`.

    A new flow has neither `id` nor `version`.
    """

    name: Name
    id: OptionalId = None
    version: Annotated[int, msgspec.Meta(ge=0, le=2**31)] | None = None
    """Version that was read. If a newer one is stored, the save is rejected."""
    enabled: bool | None = None
    """If absent, it does not change; a new flow is disabled."""
    remark: Remark | None = None
    design_data: str | None = None
    """Nodes and edges as JSON text."""


class SavedDesign(msgspec.Struct):
    """Response of a save. Both ids are the same."""

    id: str
    flow_id: str
    version: int
    """Version of the saved design, to be sent with the next save."""


class FlowResponse(ResponseModel, kw_only=True):
    """A flow in a list. Times are in ms."""

    id: str
    name: str
    remark: str
    enabled: bool
    """Whether the flow runs."""
    stopped: str | None = None
    """Reason why the engine disabled the flow. Absent if a user disabled it or it is enabled."""
    user_nickname: str | None = None
    created_at: int
    updated_at: int


class FlowVersion(ResponseModel, kw_only=True):
    """A stored version of a flow's design."""

    version: int
    """Number of the version."""
    saved_at: int | None = None
    """Unix time in ms. Absent if the version before is no longer stored."""


class DesignResponse(ResponseModel, kw_only=True):
    """A design. `version` is the latest one, which the next save must contain."""

    id: str
    name: str
    remark: str
    enabled: bool
    """Whether the flow runs."""
    stopped: str | None = None
    """Reason why the engine disabled the flow. Absent if a user disabled it or it is enabled."""
    version: int
    """Latest version of the flow, even if `design_data` is of an older version."""
    design_data: str
    """Nodes and edges as JSON text."""
