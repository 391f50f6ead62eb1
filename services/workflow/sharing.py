"""Grants of flows: asked of `auth`, and told to it."""

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
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants

log = logging.getLogger(__name__)


class FlowSharing:
    """The grants of flows."""

    def __init__(self, rpc: RpcClient, grants: GrantReader) -> None:
        self._rpc = rpc
        self._grants = grants

    async def of(self, principal: Principal) -> Grants:
        """What a user sees."""
        return await self._grants.of(principal)

    async def share(self, principal: Principal, flow_id: int) -> None:
        """Grant a flow to the roles of its creator; raise what `auth` answers."""
        wanted = ShareWithRoles(principal.tenant, principal.user_id, [_ref(flow_id)])
        await self._rpc.call(SHARE, wanted, Done)

    async def forget(self, tenant: str, ids: Sequence[int]) -> None:
        """Drop the grants of flows; left over they grant nothing, an id never returns."""
        try:
            await self._rpc.call(FORGET, ForgetResources(tenant, list(map(_ref, ids))), Done)
        except ThingwayError as error:
            log.warning("grants of flows %s are left over: %s", list(ids), error)


def _ref(flow_id: int) -> ResourceRef:
    return ResourceRef(str(flow_id), ResourceType.WORKFLOW)
