"""The vault: keeps the secrets of designs, and gives them back to what runs them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from services.workflow.vault.marks import Concealed, Marks, nodes_of

Session = Any
"""A transaction of the store."""


class Store(Protocol):
    """Where sealed secrets are kept."""

    async def sealed(self, tenant: str, marks: Collection[str]) -> Mapping[str, str]:
        """Sealed secrets by mark; what is unknown is missing."""

    async def keep(
        self,
        tenant: str,
        flow_id: int,
        given: Mapping[str, str],
        marks: Collection[str],
        session: Session,
    ) -> None:
        """Add secrets that are new, and note that a flow has them and the other marks."""

    async def forget(self, tenant: str, flow_ids: Sequence[int], session: Session) -> None:
        """Flows are deleted: delete what no other one has."""


class Vault:
    """The secrets of flows."""

    def __init__(self, store: Store, marks: Marks) -> None:
        self._store = store
        self._marks = marks

    def conceal(self, tenant: str, text: str) -> Concealed:
        """A design as it may be stored and shown."""
        return self._marks.conceal(tenant, text)

    async def keep(self, tenant: str, flow_id: int, concealed: Concealed, session: Session) -> None:
        """In the transaction that stores a design."""
        if concealed.marks:
            given, marks = concealed.given, concealed.marks
            await self._store.keep(tenant, flow_id, given, marks, session)

    async def forget(self, tenant: str, flow_ids: Sequence[int], session: Session) -> None:
        """In the transaction that deletes flows."""
        await self._store.forget(tenant, flow_ids, session)

    async def reveal(self, tenant: str, text: str, given: Mapping[str, str] | None = None) -> str:
        """A design, or one node, as it is run; `given` are secrets that are not stored yet.

        Raises `DesignInvalid` naming marks that stand for nothing here. What is no JSON is
        given back: whoever reads it says so.
        """
        try:
            found, nodes = nodes_of(text)
        except (msgspec.DecodeError, RecursionError):
            return text
        marks = self._marks.marks(nodes)
        if not marks:
            return text
        sealed = {**await self._store.sealed(tenant, marks), **(given or {})}
        self._marks.reveal(tenant, nodes, sealed)
        return msgspec.json.encode(found).decode()


class Designs(Protocol):
    """Where designs are."""

    async def design(self, tenant: str, flow_id: int, version: int) -> str | None:
        """`design_data` of a version, with marks."""


class RevealedDesigns:
    """Designs as they are run; never shown to anybody."""

    def __init__(self, designs: Designs, vault: Vault) -> None:
        self._designs = designs
        self._vault = vault

    async def design(self, tenant: str, flow_id: int, version: int) -> str | None:
        """`design_data` of a version, with its secrets; raise `DesignInvalid`."""
        text = await self._designs.design(tenant, flow_id, version)
        return None if text is None else await self._vault.reveal(tenant, text)
