"""What is asked about integrations, and what is asked of `device` for them."""

from collections.abc import Mapping

from libs.common.bus import RpcClient, RpcServer
from libs.common.contracts.entities import (
    INTEGRATION_ENTITIES,
    DescribeIntegrationEntities,
    ThingEntities,
    ThingEntity,
)
from libs.common.contracts.integrations import GetIntegrations, Manifest
from libs.common.contracts.names import (
    DEVICE_COUNTS,
    CountDevices,
    DescribeIntegrations,
    DeviceCount,
    DeviceCounts,
)
from services.management.integrations.registry import Registry
from services.management.integrations.service import IntegrationService


def offer_integrations(rpc: RpcServer, registry: Registry, service: IntegrationService) -> None:
    """Offer the operations on integrations as `rpc.management.…`."""
    rpc.offer_each("announce_integration", Manifest, registry.announce)
    rpc.offer("get_integrations", GetIntegrations, registry.known)
    rpc.offer("describe_integrations", DescribeIntegrations, service.describe)


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
