"""How many versions of a flow are kept.

The newest design runs, and people look back at a few; each may have 1 MiB.
"""

from collections.abc import AsyncIterator, Collection
from typing import Protocol

from services.workflow.designs.model import Flow
from services.workflow.designs.ports import Session
from services.workflow.vault.marks import marks_in

KEPT = 50
"""Older versions that a flow keeps, and those that runs in hand need."""
EVERY = 10
"""Versions after which the surplus is deleted: that reads all that stay, for their secrets."""


class Store(Protocol):
    """Where designs are kept."""

    async def trim(
        self, flow_id: int, before: int, needed: Collection[int], session: Session
    ) -> None:
        """Delete the designs of versions before one, but for those that are needed."""

    def designs(self, flow_id: int, session: Session) -> AsyncIterator[str]:
        """The designs of the older versions that a flow has."""


class Runs(Protocol):
    """Knows runs."""

    async def versions_in_hand(self, flow_id: int) -> Collection[int]:
        """Versions of a flow that runs need which have not ended."""


class Secrets(Protocol):
    """Where sealed secrets are kept."""

    async def keep_only(
        self, tenant: str, flow_id: int, marks: Collection[str], session: Session
    ) -> None:
        """A flow has no other marks any more."""


class History:
    """Deletes versions beyond, with the secrets that only they had."""

    def __init__(self, store: Store, runs: Runs, secrets: Secrets) -> None:
        self._store = store
        self._runs = runs
        self._secrets = secrets

    async def trim(self, flow: Flow, session: Session) -> None:
        """In the transaction that stores a new version of a flow."""
        if flow.version <= KEPT or flow.version % EVERY:
            return
        needed = await self._runs.versions_in_hand(flow.id)
        await self._store.trim(flow.id, flow.version - KEPT, needed, session)
        marks = marks_in(flow.design)
        async for design in self._store.designs(flow.id, session):
            marks |= marks_in(design)
        await self._secrets.keep_only(flow.tenant, flow.id, marks, session)
