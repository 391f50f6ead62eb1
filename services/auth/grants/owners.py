"""Asks the owners of resources which of them there are, and what they are called."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.bus import NobodyAnswers, RpcClient
from libs.common.contracts import names
from libs.common.contracts.access import ResourceType
from libs.common.contracts.integrations import (
    GET_INTEGRATIONS,
    GetIntegrations,
    KnownIntegrations,
)
from libs.common.device_client import DeviceClient
from libs.common.http.console import LARGEST_PAGE
from services.auth.accounts.grants import Resource

AT_ONCE = 200
"""Resources of one question about what there is, so that its answer fits into a message."""


@dataclass(frozen=True)
class ResourceOwners:
    """`device`, `management` and `workflow`; each call raises `Unavailable` when one is late."""

    rpc: RpcClient

    async def devices(self, wanted: names.DescribeDevices) -> names.DescribedDevices:
        """As many devices as are wanted, however many that are; 0 means all."""
        most = wanted.limit or LARGEST_PAGE
        part = msgspec.structs.replace(wanted, limit=min(most, names.MOST_DEVICES))
        found = await self.rpc.call(names.DEVICES, part, names.DescribedDevices)
        newest = found.devices
        while len(newest) == part.limit and len(found.devices) < most:
            part.skip = wanted.skip + len(found.devices)
            part.limit = min(most - len(found.devices), names.MOST_DEVICES)
            part.counted = False
            newest = (await self.rpc.call(names.DEVICES, part, names.DescribedDevices)).devices
            found.devices.extend(newest)
        return found

    async def integrations(
        self, tenant: str, ids: Sequence[str] | None = None, keyword: str = ""
    ) -> list[names.DescribedIntegration]:
        """Integrations by name; none where nobody offers any."""
        wanted = names.DescribeIntegrations(tenant, None if ids is None else list(ids), keyword)
        try:
            found = await self.rpc.call(names.INTEGRATIONS, wanted, names.DescribedIntegrations)
        except NobodyAnswers:
            return []
        return found.integrations

    async def dashboards(
        self, tenant: str, ids: Sequence[int] | None = None, keyword: str = ""
    ) -> list[names.DescribedDashboard]:
        """Dashboards by name; none where nobody offers any."""
        try:
            return await self._dashboards(tenant, ids, keyword)
        except NobodyAnswers:
            return []

    async def _dashboards(
        self, tenant: str, ids: Sequence[int] | None, keyword: str = ""
    ) -> list[names.DescribedDashboard]:
        wanted = names.DescribeDashboards(tenant, None if ids is None else list(ids), keyword)
        found = await self.rpc.call(names.DASHBOARDS, wanted, names.DescribedDashboards)
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
                devices = await DeviceClient(self.rpc).describe_devices(tenant, ids)
                return [one.id for one in devices]
            case ResourceType.DEVICE_GROUP:
                groups = await self.rpc.call(
                    names.GROUPS, names.DescribeGroups(tenant, ids), names.DescribedGroups
                )
                return groups.ids
            case ResourceType.ENTITY:
                entities = await DeviceClient(self.rpc).resolve(tenant, ids=ids)
                return [one.id for one in entities]
            case ResourceType.INTEGRATION:
                known = await self.rpc.call(GET_INTEGRATIONS, GetIntegrations(), KnownIntegrations)
                return [one.manifest.id for one in known.integrations]
            case ResourceType.DASHBOARD:
                return [one.id for one in await self._dashboards(tenant, ids)]
            case ResourceType.WORKFLOW:
                flows = await self.rpc.call(
                    names.FLOWS, names.DescribeFlows(tenant, ids), names.DescribedFlows
                )
                return flows.ids
