"""Which resources there are: asked of their owners."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from libs.common.bus import NobodyAnswers, RpcClient
from libs.common.contracts.access import ResourceType
from libs.common.contracts.entities import RESOLVE, ResolvedEntities, ResolveEntities
from libs.common.contracts.integrations import (
    GET_INTEGRATIONS,
    GetIntegrations,
    KnownIntegrations,
)
from libs.common.contracts.names import (
    DASHBOARDS,
    DEVICES,
    FLOWS,
    DescribeDashboards,
    DescribedDashboards,
    DescribedDevices,
    DescribeDevices,
    DescribedFlows,
    DescribeFlows,
)
from services.auth.grants.schemas import Resource

AT_ONCE = 200
"""Resources of one question, so that its answer fits into a message."""


class Existing:
    """`device`, `management` and `workflow` over the bus."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def missing(self, tenant: str, resources: Sequence[Resource]) -> list[Resource]:
        """Those that there are not, in order; what nobody is there to tell of is not among them.

        Raises `Unavailable` when an owner is late.
        """
        ids: dict[ResourceType, list[Any]] = defaultdict(list)
        for resource in resources:
            ids[resource.type].append(resource.id)
        there: set[Resource] = set()
        for kind, wanted in ids.items():
            for first in range(0, len(wanted), AT_ONCE):
                part = wanted[first : first + AT_ONCE]
                try:
                    found = await self._found(kind, tenant, part)
                except NobodyAnswers:
                    found = part
                there |= {Resource(kind, one) for one in found}
        return [resource for resource in resources if resource not in there]

    async def _found(self, kind: ResourceType, tenant: str, ids: list[Any]) -> list[Any]:
        match kind:
            case ResourceType.DEVICE:
                wanted = DescribeDevices(tenant, ids, limit=len(ids), counted=False)
                devices = await self._rpc.call(DEVICES, wanted, DescribedDevices)
                return [one.id for one in devices.devices]
            case ResourceType.ENTITY:
                asked = ResolveEntities(tenant=tenant, ids=ids)
                entities = await self._rpc.call(RESOLVE, asked, ResolvedEntities)
                return [one.id for one in entities.entities]
            case ResourceType.INTEGRATION:
                known = await self._rpc.call(GET_INTEGRATIONS, GetIntegrations(), KnownIntegrations)
                return [one.manifest.id for one in known.integrations]
            case ResourceType.DASHBOARD:
                described = DescribeDashboards(tenant, ids)
                dashboards = await self._rpc.call(DASHBOARDS, described, DescribedDashboards)
                return [one.id for one in dashboards.dashboards]
            case ResourceType.WORKFLOW:
                flows = await self._rpc.call(FLOWS, DescribeFlows(tenant, ids), DescribedFlows)
                return flows.ids
