"""Grants of what a service owns: asked of `auth`, and told to it."""

import logging
from collections.abc import Sequence

from libs.common.bus import RpcClient
from libs.common.contracts.access import (
    FORGET,
    SHARE,
    ForgetResources,
    ResourceRef,
    ResourceType,
    ShareWithRoles,
)
from libs.common.contracts.auth import Done
from libs.common.errors import ThingwayError
from libs.common.identity.principal import Principal
from libs.common.identity.grants import GrantReader, Grants

log = logging.getLogger(__name__)


class Sharing:
    """The grants of what users make: resources of one type."""

    def __init__(self, rpc: RpcClient, grants: GrantReader, kind: ResourceType) -> None:
        self._rpc = rpc
        self._grants = grants
        self._kind = kind

    async def of(self, principal: Principal) -> Grants:
        """What a user sees."""
        return await self._grants.of(principal)

    async def share(self, principal: Principal, resource_id: int) -> None:
        """Grant a resource to the roles of its creator; raise what `auth` answers."""
        resource = ResourceRef(str(resource_id), self._kind)
        wanted = ShareWithRoles(principal.tenant, principal.user_id, [resource])
        await self._rpc.call(SHARE, wanted, Done)

    async def forget(self, tenant: str, ids: Sequence[int]) -> None:
        """Drop the grants of resources that are gone; see `forget`."""
        await forget(self._rpc, self._kind, tenant, ids)


async def forget(rpc: RpcClient, kind: ResourceType, tenant: str, ids: Sequence[int]) -> None:
    """Drop the grants of what is gone; left over they grant nothing, an id never returns."""
    if not ids:
        return
    resources = [ResourceRef(str(one), kind) for one in ids]
    try:
        await rpc.call(FORGET, ForgetResources(tenant, resources), Done)
    except ThingwayError as error:
        log.warning("grants of %d resources (%s) are left over: %s", len(ids), kind, error)
