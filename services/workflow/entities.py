"""Entities, which belong to `device`: read, written, called and made over the bus."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from libs.common.bus import RpcClient
from libs.common.bus.rpc import error_of
from libs.common.contracts.entities import (
    CALL,
    MOST,
    UPDATE,
    VALUES,
    CalledServices,
    CallServices,
    EntityUpdate,
    EntityValues,
    ReadEntities,
    ResolvedEntity,
    UpdatedEntities,
    UpdateEntities,
    UpdateOutcome,
)
from libs.common.contracts.flows import (
    CHANGE_ALARM,
    PUT,
    REMOVE,
    ChangeAlarm,
    ChangedAlarm,
    PutFlowService,
    RemoveFlowService,
    Settled,
)
from libs.common.device_client import DeviceClient
from libs.common.errors import TooLarge
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants
from libs.common.things import SYSTEM, is_custom
from services.workflow.batches import Batches

ANY = "*"


class Entities:
    """Entities of a tenant, as the platform reads and writes them."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc
        self._custom: Batches[EntityUpdate, UpdateOutcome] = Batches(
            "custom entities", self._update_many
        )

    async def values(self, tenant: str, keys: Sequence[str]) -> EntityValues:
        """Latest values; None of one that has none, and what is unknown is missing."""
        wanted = ReadEntities(tenant, list(keys))
        return await self._rpc.call(VALUES, wanted, EntityValues)

    async def update(
        self, tenant: str, exchange: Mapping[str, Any], hops: int, *, dry_run: bool = False
    ) -> UpdateOutcome:
        """Set properties; say which were set. A dry run judges them and sets nothing.

        What is asked for at the same time of custom entities goes in one question: nobody
        outside the platform is asked for them, so that none keeps others waiting.
        """
        wanted = EntityUpdate(tenant=tenant, exchange=dict(exchange), hops=hops, dry_run=dry_run)
        if all(map(is_custom, exchange)):
            outcome = await self._custom.put(wanted)
        else:
            (outcome,) = await self._update_once([wanted])
        if outcome.status:
            raise error_of(outcome.status, outcome.code, outcome.error)
        return outcome

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
        self,
        tenant: str,
        exchange: Mapping[str, Any],
        hops: int,
        seconds: float,
        *,
        dry_run: bool = False,
    ) -> Mapping[str, Any]:
        """Call services; their outputs in one map. A dry run judges inputs and calls nothing."""
        wanted = CallServices(tenant=tenant, exchange=dict(exchange), hops=hops, dry_run=dry_run)
        return (await self._rpc.call(CALL, wanted, CalledServices, timeout=seconds)).outputs

    async def change_alarm(self, wanted: ChangeAlarm, seconds: float) -> ChangedAlarm:
        """Raise or clear an alarm of the device of an entity."""
        return await self._rpc.call(CHANGE_ALARM, wanted, ChangedAlarm, timeout=seconds)

    async def resolve(self, tenant: str, keys: Collection[str]) -> Collection[ResolvedEntity]:
        """Those of `keys` that there are."""
        return await DeviceClient(self._rpc).resolve(tenant, keys=list(keys))

    async def put_service(self, service: PutFlowService) -> None:
        """Make a flow's service like this."""
        await self._rpc.call(PUT, service, Settled)

    async def remove_service(self, tenant: str, flow_id: int) -> None:
        """Remove a flow's service; it may not be there."""
        await self._rpc.call(REMOVE, RemoveFlowService(tenant, flow_id), Settled)


class EntityAccess:
    """Which entities a user may use in a flow: those that the user sees."""

    def __init__(self, grants: GrantReader, entities: Entities) -> None:
        self._grants = grants
        self._entities = entities

    async def unseen(self, user: Principal, keys: Collection[str]) -> Collection[str]:
        """Those of `keys` that do not exist or that a user must not use.

        Custom entities are everybody's. A pattern may fit no entity yet; it must begin with an
        integration that the user sees as a whole.
        """
        grants = await self._grants.of(user)
        plain = [key for key in keys if ANY not in key]
        seen = {key for key in keys if ANY in key and _covers(grants, key)}
        for start in range(0, len(plain), MOST):
            asked = plain[start : start + MOST]
            found = await self._entities.resolve(user.tenant, asked)
            seen |= {one.key for one in found if grants.sees(one)}
        return [key for key in keys if key not in seen]


def _covers(grants: Grants, pattern: str) -> bool:
    integration, dot, _ = pattern.partition(ANY)[0].partition(".")
    if grants.everything:
        return True
    return bool(dot) and (integration == SYSTEM or grants.integration(integration))
