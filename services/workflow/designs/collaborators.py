"""What the operations on flows need of others, to be given or faked."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from services.workflow.designs.model import Flow
from services.workflow.designs.ports import Session
from services.workflow.vault.marks import Concealed

AfterWrite = Callable[[Session], Awaitable[None]]
"""What else belongs into the transaction of a write."""


class Store(Protocol):
    """Where flows are kept."""

    async def insert(self, flow: Flow, also: AfterWrite) -> None:
        """Add a flow, and do `also` in the same transaction."""

    async def replace(self, before: Flow, after: Flow, also: AfterWrite) -> bool:
        """Set a flow that is still as `before`; False when it is not."""

    async def get(self, tenant: str, flow_id: int) -> Flow | None:
        """One flow."""

    async def design(self, tenant: str, flow_id: int, version: int) -> str | None:
        """A version of its design."""

    async def count(self, tenant: str) -> int:
        """How many flows a tenant has."""

    async def remove(self, tenant: str, ids: Sequence[int], also: AfterWrite) -> None:
        """Delete flows."""

    async def search(
        self,
        tenant: str,
        *,
        ids: Sequence[int] | None,
        name: str,
        enabled: bool | None,
        order: list[tuple[str, int]],
        skip: int,
        limit: int,
    ) -> tuple[list[Flow], int]:
        """One page, and how many there are."""

    async def present(self, tenant: str, ids: Sequence[int]) -> list[int]:
        """Those of `ids` that there are."""


class Sharing(Protocol):
    """The grants, as far as they are needed here."""

    async def of(self, principal: Principal) -> Grants:
        """What a user sees."""

    async def share(self, principal: Principal, flow_id: int) -> None:
        """Grant a flow to the roles of its creator."""

    async def forget(self, tenant: str, ids: Sequence[int]) -> None:
        """Drop the grants of flows that are gone."""


class People(Protocol):
    """Knows users."""

    async def nicknames(self, tenant: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Nicknames by user id; who is unknown is missing."""


class Vault(Protocol):
    """Keeps the secrets of designs."""

    def conceal(self, tenant: str, text: str) -> Concealed:
        """A design as it may be stored and shown."""

    async def keep(self, tenant: str, flow_id: int, concealed: Concealed, session: Session) -> None:
        """In the transaction that stores a design."""

    async def forget(self, tenant: str, flow_ids: Sequence[int], session: Session) -> None:
        """In the transaction that deletes flows."""


class Unsettled(Protocol):
    """Remembers which flows are being changed, for when that is interrupted."""

    async def note(self, tenant: str, ids: Sequence[int], session: Session | None = None) -> None:
        """Flows are about to change."""


class Logs(Protocol):
    """The logs of flows."""

    async def remove(self, tenant: str, flow_ids: Sequence[int]) -> None:
        """Delete all that flows have logged."""
