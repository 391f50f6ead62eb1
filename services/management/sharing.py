"""Grants of what this service owns: asked of `auth`, and told to it."""

import logging

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


class DashboardSharing:
    """The grants of dashboards."""

    def __init__(self, rpc: RpcClient, grants: GrantReader) -> None:
        self._rpc = rpc
        self._grants = grants

    async def of(self, principal: Principal) -> Grants:
        """What a user sees."""
        return await self._grants.of(principal)

    async def share(self, principal: Principal, dashboard_id: int) -> None:
        """Grant a dashboard to the roles of its creator; raise what `auth` answers."""
        wanted = ShareWithRoles(principal.tenant, principal.user_id, [_ref(dashboard_id)])
        await self._rpc.call(SHARE, wanted, Done)

    async def forget(self, tenant: str, dashboard_id: int) -> None:
        """Drop the grants of a dashboard; left over they grant nothing, its id never returns."""
        try:
            await self._rpc.call(FORGET, ForgetResources(tenant, [_ref(dashboard_id)]), Done)
        except ThingwayError as error:
            log.warning("grants of dashboard %d are left over: %s", dashboard_id, error)


def _ref(dashboard_id: int) -> ResourceRef:
    return ResourceRef(str(dashboard_id), ResourceType.DASHBOARD)
