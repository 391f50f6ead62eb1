"""Tells the gateway and the services what a user may do and see."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from libs.common.contracts.access import Access, GrantedResources, ResourceType, UserRef
from libs.common.errors import Conflict, Unauthenticated
from libs.common.identity.functions import Function
from services.auth.grants.snapshot import HeldAccess, HeldGrants

MOST_GRANTS = 50_000
"""Most grants of one answer: of the longest ids as many fit into a message of the bus."""
_FUNCTIONS = frozenset(Function)


class Snapshots(Protocol):
    """Reads what a user holds, all of one moment; None when it is gone or disabled."""

    async def access(self, tenant: str, user_id: int) -> HeldAccess | None:
        """What a user may do."""

    async def grants(self, tenant: str, user_id: int) -> HeldGrants | None:
        """What a user's roles are granted."""


class AccessService:
    """Answers `get_access` and `get_grants`."""

    def __init__(self, snapshots: Snapshots, reach: Callable[[str, int], Awaitable[None]]) -> None:
        self._snapshots = snapshots
        self._reach = reach

    async def access(self, wanted: UserRef) -> Access:
        """A user's functions; raise `Unauthenticated` when it is gone or disabled.

        Restores the tenant's version where the next request looks it up, should it be lost.
        """
        held = await self._snapshots.access(wanted.tenant, wanted.user_id)
        if held is None:
            raise _gone()
        await self._reach(wanted.tenant, held.version)
        return Access(held.version, held.codes & _FUNCTIONS, held.super_admin)

    async def grants(self, wanted: UserRef) -> GrantedResources:
        """A user's grants; raise `Unauthenticated` when it is gone or disabled.

        Raises `Conflict` when its roles together grant more than can be answered.
        """
        held = await self._snapshots.grants(wanted.tenant, wanted.user_id)
        if held is None:
            raise _gone()
        if sum(map(len, held.ids.values())) > MOST_GRANTS:
            raise Conflict(
                f"the roles of the user grant more than {MOST_GRANTS} resources together; "
                "grant their integrations instead"
            )
        return GrantedResources(
            version=held.version,
            integrations=held.ids[ResourceType.INTEGRATION],
            devices=held.ids[ResourceType.DEVICE],
            entities=held.ids[ResourceType.ENTITY],
            dashboards=held.ids[ResourceType.DASHBOARD],
            workflows=held.ids[ResourceType.WORKFLOW],
        )


def _gone() -> Unauthenticated:
    return Unauthenticated("the user is gone or disabled")
