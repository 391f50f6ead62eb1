"""Asks the owners of resources what these are called."""

from collections.abc import Sequence

import msgspec

from libs.common.bus import NobodyAnswers, RpcClient
from libs.common.contracts.names import (
    DASHBOARDS,
    DEVICES,
    INTEGRATIONS,
    MOST_DEVICES,
    DescribeDashboards,
    DescribedDashboard,
    DescribedDashboards,
    DescribedDevices,
    DescribeDevices,
    DescribedIntegration,
    DescribedIntegrations,
    DescribeIntegrations,
)
from libs.common.http.console import LARGEST_PAGE


class Owners:
    """`device` and `management` over the bus; each call raises `Unavailable` when it is late."""

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
