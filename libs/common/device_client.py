"""Requests to `device` about devices, entities and integrations."""

from collections.abc import Mapping, Sequence

from libs.common.bus import RpcClient
from libs.common.contracts.entities import (
    INTEGRATION_ENTITIES,
    RESOLVE_ENTITIES,
    DescribeIntegrationEntities,
    ResolvedEntities,
    ResolvedEntity,
    ResolveEntities,
    ThingEntities,
    ThingEntity,
)
from libs.common.contracts.names import (
    DESCRIBE_DEVICES,
    DEVICE_COUNTS,
    MAX_DESCRIBED_DEVICES,
    CountDevices,
    DescribedDevice,
    DescribedDevices,
    DescribeDevices,
    DeviceCount,
    DeviceCounts,
)

MAX_RESOLVED_ENTITIES = 100
"""Maximum entities per request by id, so that the answer fits into a message."""


class DeviceClient:
    """Calls `device`; each method raises the error of the answer, or `Unavailable`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def describe_devices(self, tenant: str, ids: Sequence[int]) -> list[DescribedDevice]:
        """Return the existing devices of at most `MAX_DESCRIBED_DEVICES` ids."""
        request = DescribeDevices(tenant, ids=list(ids), limit=MAX_DESCRIBED_DEVICES, counted=False)
        return (await self._rpc.call(DESCRIBE_DEVICES, request, DescribedDevices)).devices

    async def resolve(
        self, tenant: str, *, ids: Sequence[int] = (), keys: Sequence[str] = ()
    ) -> list[ResolvedEntity]:
        """Return the existing entities of at most `MAX_RESOLVED_KEYS` ids or keys."""
        request = ResolveEntities(tenant=tenant, ids=list(ids), keys=list(keys))
        return (await self._rpc.call(RESOLVE_ENTITIES, request, ResolvedEntities)).entities

    async def resolve_all(self, tenant: str, ids: Sequence[int]) -> list[ResolvedEntity]:
        """Return the existing entities of any number of ids, with their value attributes."""
        entities: list[ResolvedEntity] = []
        for first in range(0, len(ids), MAX_RESOLVED_ENTITIES):
            entities += await self.resolve(tenant, ids=ids[first : first + MAX_RESOLVED_ENTITIES])
        return entities

    async def count_devices(self, tenant: str) -> Mapping[str, DeviceCount]:
        """Return the number of devices and of their entities, by integration."""
        return (await self._rpc.call(DEVICE_COUNTS, CountDevices(tenant), DeviceCounts)).counts

    async def describe_integration(self, tenant: str, integration: str) -> list[ThingEntity]:
        """Return the entities of an integration itself, with their latest values."""
        request = DescribeIntegrationEntities(tenant, integration)
        return (await self._rpc.call(INTEGRATION_ENTITIES, request, ThingEntities)).entities
