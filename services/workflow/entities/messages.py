"""Asks `device` for what nodes do with entities."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from libs.common.bus import RpcClient
from libs.common.contracts.entities import (
    CALL,
    RESOLVE,
    UPDATE,
    VALUES,
    CalledServices,
    CallServices,
    EntityValues,
    ReadEntities,
    ResolvedEntities,
    ResolvedEntity,
    ResolveEntities,
    UpdatedEntities,
    UpdateEntities,
)


class EntitiesOverRpc:
    """Reads and writes entities of a tenant, as the platform."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def values(self, tenant: str, keys: Sequence[str]) -> Mapping[str, Any]:
        """Latest values; None of one that has none, and what is unknown is missing."""
        wanted = ReadEntities(tenant, list(keys))
        return (await self._rpc.call(VALUES, wanted, EntityValues)).values

    async def update(self, tenant: str, exchange: Mapping[str, Any], hops: int) -> Sequence[str]:
        """Set properties; give the keys that were set."""
        wanted = UpdateEntities(tenant=tenant, exchange=dict(exchange), hops=hops)
        return (await self._rpc.call(UPDATE, wanted, UpdatedEntities)).keys

    async def call(
        self, tenant: str, exchange: Mapping[str, Any], hops: int, seconds: float
    ) -> Mapping[str, Any]:
        """Call services; their outputs in one map."""
        wanted = CallServices(tenant=tenant, exchange=dict(exchange), hops=hops)
        return (await self._rpc.call(CALL, wanted, CalledServices, timeout=seconds)).outputs

    async def resolve(self, tenant: str, keys: Collection[str]) -> Collection[ResolvedEntity]:
        """Those of `keys` that there are."""
        wanted = ResolveEntities(tenant=tenant, keys=list(keys))
        return (await self._rpc.call(RESOLVE, wanted, ResolvedEntities)).entities
