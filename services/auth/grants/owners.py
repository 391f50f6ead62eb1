"""Asks the owners of resources which of them there are, and what they are called."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

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
    GROUPS,
    INTEGRATIONS,
    MOST_DEVICES,
    DescribeDashboards,
    DescribedDashboard,
    DescribedDashboards,
    DescribedDevices,
    DescribeDevices,
    DescribedFlows,
    DescribedGroups,
    DescribedIntegration,
    DescribedIntegrations,
    DescribeFlows,
    DescribeGroups,
    DescribeIntegrations,
)
from libs.common.http.console import LARGEST_PAGE
from services.auth.accounts.grants import Resource

AT_ONCE = 200
"""Resources of one question about what there is, so that its answer fits into a message."""


class Owners:
    """`device`, `management` and `workflow`; each call raises `Unavailable` when one is late."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def devices(self, wanted: DescribeDevices) -> DescribedDevices:
        """As many devices as are wanted, however many that are; 0 means all."""
        most = wanted.limit or LARGEST_PAGE
        part = msgspec.structs.replace(wanted, limit=min(most, MOST_DEVICES))
        found = await self._rpc.call(DEVICES, part, DescribedDevices)
        newest = found.devices
        while len(newest) == part.limit and len(found.devices) < most:
            part.skip = wanted.skip + len(found.devices)
            part.limit = min(most - len(found.devices), MOST_DEVICES)
            part.counted = False
            newest = (await self._rpc.call(DEVICES, part, DescribedDevices)).devices
            found.devices.extend(newest)
        return found

    async def integrations(
        self, tenant: str, ids: Sequence[str] | None = None, keyword: str = ""
    ) -> list[DescribedIntegration]:
        """Integrations by name; none where nobody offers any."""
        wanted = DescribeIntegrations(tenant, None if ids is None else list(ids), keyword)
        try:
            found = await self._rpc.call(INTEGRATIONS, wanted, DescribedIntegrations)
        except NobodyAnswers:
            return []
        return found.integrations

    async def dashboards(
        self, tenant: str, ids: Sequence[int] | None = None, keyword: str = ""
    ) -> list[DescribedDashboard]:
        """Dashboards by name; none where nobody offers any."""
        wanted = DescribeDashboards(tenant, None if ids is None else list(ids), keyword)
        try:
            found = await self._rpc.call(DASHBOARDS, wanted, DescribedDashboards)
        except NobodyAnswers:
            return []
        return found.dashboards

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
            case ResourceType.DEVICE_GROUP:
                groups = await self._rpc.call(GROUPS, DescribeGroups(tenant, ids), DescribedGroups)
                return groups.ids
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
