"""Client for entities of `device`: reads, writes, service calls and flow services."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from libs.common.bus import RpcClient
from libs.common.bus.rpc import remote_error
from libs.common.contracts.entities import (
    CALL_SERVICE,
    ENTITY_VALUES,
    MAX_RESOLVED_KEYS,
    UPDATE_ENTITIES,
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
    PUT_FLOW_SERVICE,
    REMOVE_FLOW_SERVICE,
    ChangeAlarm,
    ChangeAlarmAnswer,
    FlowServiceAnswer,
    PutFlowService,
    RemoveFlowService,
)
from libs.common.device_client import DeviceClient
from libs.common.errors import TooLarge
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants
from libs.common.things import SYSTEM_INTEGRATION, is_custom_key
from services.workflow.batches import WriteBatcher

WILDCARD = "*"
"""Matches any characters in a pattern of entity keys."""


class Entities:
    """Reads and writes entities of a tenant with the permissions of the platform."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc
        self._custom: WriteBatcher[EntityUpdate, UpdateOutcome] = WriteBatcher(
            "custom entities", self._update_batch
        )

    async def read_values(self, tenant: str, keys: Sequence[str]) -> EntityValues:
        """Return the latest values by key, None for an entity without a value.

        Keys of entities that do not exist are left out.
        """
        request = ReadEntities(tenant, list(keys))
        return await self._rpc.call(ENTITY_VALUES, request, EntityValues)

    async def update(
        self, tenant: str, exchange: Mapping[str, Any], hops: int, *, dry_run: bool = False
    ) -> UpdateOutcome:
        """Set properties and return those that were set; a dry run only validates.

        Concurrent updates of custom entities share a request. A custom entity needs no response
        from outside the platform, so no update delays the others in the request.
        """
        request = EntityUpdate(tenant=tenant, exchange=dict(exchange), hops=hops, dry_run=dry_run)
        if all(map(is_custom_key, exchange)):
            outcome = await self._custom.write(request)
        else:
            (outcome,) = await self._update_once([request])
        if outcome.status:
            raise remote_error(outcome.status, outcome.code, outcome.error)
        return outcome

    async def _update_batch(self, updates: Sequence[EntityUpdate]) -> Sequence[UpdateOutcome]:
        try:
            return await self._update_once(updates)
        except TooLarge:
            if len(updates) == 1:
                raise
            middle = len(updates) // 2
            first = await self._update_batch(updates[:middle])
            return [*first, *await self._update_batch(updates[middle:])]

    async def _update_once(self, updates: Sequence[EntityUpdate]) -> Sequence[UpdateOutcome]:
        request = UpdateEntities(list(updates))
        return (await self._rpc.call(UPDATE_ENTITIES, request, UpdatedEntities)).outcomes

    async def call_services(
        self,
        tenant: str,
        exchange: Mapping[str, Any],
        hops: int,
        seconds: float,
        *,
        dry_run: bool = False,
    ) -> Mapping[str, Any]:
        """Call services and return their outputs as one map; a dry run only validates."""
        request = CallServices(tenant=tenant, exchange=dict(exchange), hops=hops, dry_run=dry_run)
        return (
            await self._rpc.call(CALL_SERVICE, request, CalledServices, timeout=seconds)
        ).outputs

    async def change_alarm(self, request: ChangeAlarm, seconds: float) -> ChangeAlarmAnswer:
        """Raise or clear an alarm of the device of an entity."""
        return await self._rpc.call(CHANGE_ALARM, request, ChangeAlarmAnswer, timeout=seconds)

    async def resolve(self, tenant: str, keys: Collection[str]) -> Collection[ResolvedEntity]:
        """Return the entities among `keys` that exist."""
        return await DeviceClient(self._rpc).resolve(tenant, keys=list(keys))

    async def put_service(self, service: PutFlowService) -> None:
        """Create or replace a flow's service."""
        await self._rpc.call(PUT_FLOW_SERVICE, service, FlowServiceAnswer)

    async def remove_service(self, tenant: str, flow_id: int) -> None:
        """Delete a flow's service if it exists."""
        await self._rpc.call(
            REMOVE_FLOW_SERVICE, RemoveFlowService(tenant, flow_id), FlowServiceAnswer
        )


class EntityAccess:
    """The entities that a user may use in a flow: those visible to the user."""

    def __init__(self, grants: GrantReader, entities: Entities) -> None:
        self._grants = grants
        self._entities = entities

    async def find_invisible(self, user: Principal, keys: Collection[str]) -> Collection[str]:
        """Return those of `keys` that do not exist or are not visible to the user.

        Custom entities are visible to all users. A pattern may match no entity yet, but must begin
        with an integration that is fully visible to the user.
        """
        grants = await self._grants.read(user)
        plain = [key for key in keys if WILDCARD not in key]
        visible = {key for key in keys if WILDCARD in key and _covers_pattern(grants, key)}
        for start in range(0, len(plain), MAX_RESOLVED_KEYS):
            batch = plain[start : start + MAX_RESOLVED_KEYS]
            entities = await self._entities.resolve(user.tenant, batch)
            visible |= {entity.key for entity in entities if grants.allows_entity(entity)}
        return [key for key in keys if key not in visible]


def _covers_pattern(grants: Grants, pattern: str) -> bool:
    integration, dot, _ = pattern.partition(WILDCARD)[0].partition(".")
    if grants.everything:
        return True
    return bool(dot) and (
        integration == SYSTEM_INTEGRATION or grants.allows_integration(integration)
    )
