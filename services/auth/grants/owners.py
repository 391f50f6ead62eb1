"""Requests to the owners of resources: existing ids, and names."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.bus import NoResponders, RpcClient
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

BATCH = 200
"""Resources per request, so that the response fits into one NATS message."""


@dataclass(frozen=True)
class ResourceOwners:
    """Client of `device`, `management` and `workflow`.

    Each method raises `Unavailable` if a service does not respond in time.
    """

    rpc: RpcClient

    async def list_devices(self, wanted: names.DescribeDevices) -> names.DescribedDevices:
        """Return the requested devices in as many requests as needed.

        A limit of 0 means all devices.
        """
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

    async def list_integrations(
        self, tenant: str, ids: Sequence[str] | None = None, keyword: str = ""
    ) -> list[names.DescribedIntegration]:
        """Return integrations sorted by name; empty if no service offers integrations."""
        wanted = names.DescribeIntegrations(tenant, None if ids is None else list(ids), keyword)
        try:
            found = await self.rpc.call(names.INTEGRATIONS, wanted, names.DescribedIntegrations)
        except NoResponders:
            return []
        return found.integrations

    async def list_dashboards(
        self, tenant: str, ids: Sequence[int] | None = None, keyword: str = ""
    ) -> list[names.DescribedDashboard]:
        """Return dashboards sorted by name; empty if no service offers dashboards."""
        try:
            return await self._request_dashboards(tenant, ids, keyword)
        except NoResponders:
            return []

    async def _request_dashboards(
        self, tenant: str, ids: Sequence[int] | None, keyword: str = ""
    ) -> list[names.DescribedDashboard]:
        wanted = names.DescribeDashboards(tenant, None if ids is None else list(ids), keyword)
        found = await self.rpc.call(names.DASHBOARDS, wanted, names.DescribedDashboards)
        return found.dashboards

    async def find_missing(self, tenant: str, resources: Sequence[Resource]) -> list[Resource]:
        """Return the resources that do not exist, in order.

        Resources whose owner is not installed count as existing.
        """
        ids: dict[ResourceType, list[Any]] = defaultdict(list)
        for resource in resources:
            ids[resource.type].append(resource.id)
        existing: set[Resource] = set()
        for kind, wanted in ids.items():
            for first in range(0, len(wanted), BATCH):
                part = wanted[first : first + BATCH]
                try:
                    found = await self._find_existing(kind, tenant, part)
                except NoResponders:
                    found = part
                existing |= {Resource(kind, each) for each in found}
        return [resource for resource in resources if resource not in existing]

    async def _find_existing(self, kind: ResourceType, tenant: str, ids: list[Any]) -> list[Any]:
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
                return [one.id for one in await self._request_dashboards(tenant, ids)]
            case ResourceType.WORKFLOW:
                flows = await self.rpc.call(
                    names.FLOWS, names.DescribeFlows(tenant, ids), names.DescribedFlows
                )
                return flows.ids
