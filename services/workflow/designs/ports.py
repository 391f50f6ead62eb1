"""What flows need of others, to be given or faked; triggers implement `Deployments`."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from services.workflow.runs.records import Deployed


class SavedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow with the entry of its newest design, enabled or not."""

    tenant: str
    flow_id: int
    name: str
    remark: str
    user_id: int | None
    """Who saved it."""
    component: str | None
    """Node type of its entry; None while the design has not exactly one."""
    parameters: Mapping[str, Any]
    """The entry's; unchecked, as drafts may have anything."""


Session = Any
"""A transaction of the store."""


class Deployments(Protocol):
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
