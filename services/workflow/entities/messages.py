"""Asks `device` for what nodes do with entities."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from libs.common.bus import RpcClient
from libs.common.bus.rpc import error_of
from libs.common.contracts.entities import (
    CALL,
    RESOLVE,
    UPDATE,
    VALUES,
    CalledServices,
    CallServices,
    EntityUpdate,
    EntityValues,
    ReadEntities,
    ResolvedEntities,
    ResolvedEntity,
    ResolveEntities,
    UpdatedEntities,
    UpdateEntities,
    UpdateOutcome,
)
from libs.common.errors import TooLarge
from libs.common.things import is_custom
from services.workflow.runs.batches import Batches


class EntitiesOverRpc:
    """Reads and writes entities of a tenant, as the platform."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc
        self._custom: Batches[EntityUpdate, UpdateOutcome] = Batches(self._update_many)

    async def values(self, tenant: str, keys: Sequence[str]) -> Mapping[str, Any]:
        """Latest values; None of one that has none, and what is unknown is missing."""
        wanted = ReadEntities(tenant, list(keys))
        return (await self._rpc.call(VALUES, wanted, EntityValues)).values

    async def update(self, tenant: str, exchange: Mapping[str, Any], hops: int) -> Sequence[str]:
        """Set properties; give the keys that were set.

        What is asked for at the same time of custom entities goes in one question: nobody
        outside the platform is asked for them, so that none keeps others waiting.
        """
        wanted = EntityUpdate(tenant=tenant, exchange=dict(exchange), hops=hops)
        if all(map(is_custom, exchange)):
            outcome = await self._custom.put(wanted)
        else:
            (outcome,) = await self._update_once([wanted])
        if outcome.status:
            raise error_of(outcome.status, outcome.code, outcome.error)
        return outcome.keys

    async def _update_many(self, updates: Sequence[EntityUpdate]) -> Sequence[UpdateOutcome]:
        try:
            return await self._update_once(updates)
        except TooLarge:
            if len(updates) == 1:
                raise
            middle = len(updates) // 2
            first = await self._update_many(updates[:middle])
            return [*first, *await self._update_many(updates[middle:])]

    async def _update_once(self, updates: Sequence[EntityUpdate]) -> Sequence[UpdateOutcome]:
        wanted = UpdateEntities(list(updates))
        return (await self._rpc.call(UPDATE, wanted, UpdatedEntities)).outcomes

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
