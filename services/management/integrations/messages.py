"""What `device` is asked for integrations."""

from collections.abc import Mapping

from libs.common.bus import RpcClient
from libs.common.contracts.entities import (
    INTEGRATION_ENTITIES,
    DescribeIntegrationEntities,
    ThingEntities,
    ThingEntity,
)
from libs.common.contracts.names import (
    DEVICE_COUNTS,
    CountDevices,
    DeviceCount,
    DeviceCounts,
)


class ThingsOverRpc:
    """Asks `device` about the things of integrations."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def counts(self, tenant: str) -> Mapping[str, DeviceCount]:
        """Devices and their entities by integration."""
        return (await self._rpc.call(DEVICE_COUNTS, CountDevices(tenant), DeviceCounts)).counts

    async def entities(self, tenant: str, integration: str) -> list[ThingEntity]:
        """Entities of the integration itself with their latest values."""
        wanted = DescribeIntegrationEntities(tenant, integration)
        return (await self._rpc.call(INTEGRATION_ENTITIES, wanted, ThingEntities)).entities
