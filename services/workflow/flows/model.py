"""Flows as they are kept, and what is told of them. No I/O."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from libs.common.store.mongo import Session
from services.workflow.runs.records import Deployed

AfterWrite = Callable[[Session], Awaitable[None]]
"""What else belongs into the transaction of a write."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow with its newest design."""

    id: int
    tenant: str
    name: str
    remark: str
    enabled: bool
    version: int
    """Of the newest design, from 1; older ones are kept."""
    design: str
    """`design_data`, as it was saved."""
    user_id: int | None
    """Who made it."""
    created_at: int
    """ms."""
    updated_at: int
    stopped: str | None = None
    """Why the engine disabled it; None since somebody has enabled it."""


class SavedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow with the entry of its newest design, enabled or not."""

    tenant: str
    flow_id: int
    name: str
    remark: str
    component: str | None
    """Node type of its entry; None while the design has not exactly one."""
    parameters: Mapping[str, Any]
    """The entry's; unchecked, as drafts may have anything."""


class Deployments:
    """Told what becomes of flows; one for each kind of trigger that keeps something.

    Each is told of all flows, also of those with another entry: a flow may have had its own
    until now. All calls may come again with the same content.
    """

    async def prepare(self, flow: SavedFlow) -> None:
        """Before a flow is stored, or stored anew: make what must be there with it.

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
