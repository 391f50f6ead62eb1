"""RPC operations on entities for other services: `rpc.device.{operation}`.

The calling service has checked the user's grants, or `workflow` has checked them when the flow was
enabled. Here the platform acts for one tenant.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from libs.common.bus import RpcServer
from libs.common.bus.hops import carrying_hops
from libs.common.contracts.entities import (
    MAX_RESOLVED_KEYS,
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
from libs.common.contracts.flows import PutFlowService, RemoveFlowService
from libs.common.errors import InvalidInput, NotFound, ThingwayError, UpstreamTimeout
from libs.common.identity import PLATFORM_USER_ID, Principal, PrincipalKind
from libs.common.jobs import gather_limited
from services.device.entities.custom_entities import CustomEntities
from services.device.entities.property_updates import EntityWriter, FlowUpdate, is_settable_by_flows
from services.device.entities.service import ValueReader, without_times
from services.device.entities.service_calls import EntityCaller
from services.device.members.directory import (
    EntityDirectory,
    find_integrations_with_own_entities,
    split_keys,
)
from services.device.members.entity import Entity
from services.device.members.integration_things import IntegrationThings

CONCURRENT_WRITES = 64
"""Updates of a request that are written at the same time."""


@dataclass(frozen=True, kw_only=True)
class EntityRpc:
    """RPC operations on entities."""

    directory: EntityDirectory
    integration_things: IntegrationThings
    values: ValueReader
    writer: EntityWriter
    caller: EntityCaller
    custom: CustomEntities

    def offer(self, rpc: RpcServer) -> None:
        """Register the handlers of the operations."""
        rpc.offer("resolve_entities", ResolveEntities, self.resolve)
        rpc.offer("entity_values", ReadEntities, self.read)
        rpc.offer("update_entities", UpdateEntities, self.update)
        rpc.offer("call_service", CallServices, self.call)
        rpc.offer("put_flow_service", PutFlowService, self.custom.put_flow_service)
        rpc.offer("remove_flow_service", RemoveFlowService, self.custom.remove_flow_service)

    async def resolve(self, request: ResolveEntities) -> ResolvedEntities:
        """Return the entities of the requested keys and ids, without unknown ones."""
        _check_count("keys", request.keys)
        _check_count("ids", request.ids)
        entities: dict[int, Entity] = {}
        if request.ids:
            entities = await self.directory.find_by_ids(request.tenant, request.ids)
        if request.keys:
            parts = split_keys(request.keys)
            await self.integration_things.ensure_for_tenant(
                request.tenant, find_integrations_with_own_entities(parts)
            )
            by_key = await self.directory.find_by_split_keys(request.tenant, parts)
            entities |= {entity.id: entity for entity in by_key.values()}
        return ResolvedEntities(list(map(_to_resolved, entities.values())))

    async def read(self, request: ReadEntities) -> EntityValues:
        """Return latest values by key; None for an entity that has no value or is no property."""
        _check_count("keys", request.keys)
        entities = await self.directory.find_by_keys(request.tenant, request.keys)
        latest = await self.values.find_property_values_by_thing(request.tenant, entities.values())
        return EntityValues(
            {
                key: entity.value_in(without_times(latest.get(entity.thing.id, {})))
                if entity.member.type == "PROPERTY"
                else None
                for key, entity in entities.items()
            },
            _write_only_keys(entities),
        )

    async def update(self, request: UpdateEntities) -> UpdatedEntities:
        """Set properties; an update with an unknown entity has an error that names it."""
        _check_count("updates", request.updates)
        keys: dict[str, set[str]] = defaultdict(set)
        for update in request.updates:
            keys[update.tenant].update(update.exchange)
        entities_by_tenant = {
            tenant: await self.directory.find_by_keys(tenant, tenant_keys, load_things=True)
            for tenant, tenant_keys in keys.items()
        }
        updates = [
            _to_flow_update(update, entities_by_tenant[update.tenant]) for update in request.updates
        ]
        valid = [update for update in updates if update.error is None]
        calls = (partial(self._update_entities, update) for update in valid if not update.is_custom)
        await asyncio.gather(
            self._update_custom([update for update in valid if update.is_custom]),
            gather_limited(CONCURRENT_WRITES, calls),
        )
        return UpdatedEntities(list(map(_to_outcome, updates)))

    async def _update_custom(self, updates: Sequence[FlowUpdate]) -> None:
        try:
            await self.writer.update_custom(updates)
        except ThingwayError as error:
            for update in updates:
                update.error = update.error or error

    async def _update_entities(self, update: FlowUpdate) -> None:
        with carrying_hops(update.hops):
            try:
                await self.writer.update_given_entities(
                    _platform_principal(update.tenant),
                    update.exchange,
                    update.entities,
                    is_settable_by_flows,
                    dry_run=update.dry_run,
                )
            except ThingwayError as error:
                update.error = error

    async def call(self, request: CallServices) -> CalledServices:
        """Call services; raise `NotFound` with the keys of unknown entities.

        Raises `UpstreamTimeout` for an offline device or a LoRaWAN sensor, which receives the call
        later.
        """
        entities = await self.directory.find_by_keys(
            request.tenant, request.exchange, load_things=True
        )
        missing = _missing_error(request.exchange, entities)
        if missing:
            raise missing
        with carrying_hops(request.hops):
            caller = _platform_principal(request.tenant)
            called = await self.caller.call_given_entities(
                caller, request.exchange, entities, dry_run=request.dry_run
            )
        if called.queued:
            sns = ", ".join(call.sn for call in called.queued[:5])
            text = (
                f"{sns} cannot receive the call now. A device receives it when it connects, "
                "a LoRaWAN sensor after its next uplink"
            )
            raise UpstreamTimeout(text, field="exchange")
        return CalledServices(called.outputs)


def _check_count(field: str, entries: Collection[Any]) -> None:
    if len(entries) > MAX_RESOLVED_KEYS:
        raise InvalidInput(f"must be at most {MAX_RESOLVED_KEYS}", field=field)


def _to_flow_update(request: EntityUpdate, entities: Mapping[str, Entity]) -> FlowUpdate:
    return FlowUpdate(
        tenant=request.tenant,
        exchange=request.exchange,
        entities={key: entities[key] for key in request.exchange if key in entities},
        hops=request.hops,
        dry_run=request.dry_run,
        error=_missing_error(request.exchange, entities),
    )


def _missing_error(keys: Iterable[str], entities: Mapping[str, Entity]) -> NotFound | None:
    missing = [key for key in keys if key not in entities]
    if not missing:
        return None
    return NotFound(f"entity {', '.join(missing[:5])} does not exist", field="exchange")


def _to_outcome(update: FlowUpdate) -> UpdateOutcome:
    error = update.error
    if error is not None:
        return UpdateOutcome(status=error.status, code=error.code, error=error.text)
    updated = {
        key: entity for key, entity in update.entities.items() if is_settable_by_flows(entity)
    }
    return UpdateOutcome(keys=list(updated), write_only=_write_only_keys(updated))


def _write_only_keys(entities: Mapping[str, Entity]) -> list[str]:
    return [key for key, entity in entities.items() if entity.write_only]


def _to_resolved(entity: Entity) -> ResolvedEntity:
    thing, member = entity.thing, entity.member
    return ResolvedEntity(
        id=entity.id,
        key=entity.key,
        thing_id=thing.id,
        integration=thing.integration,
        device=thing.device,
        member=member.path,
        parent=entity.parent_key,
        name=member.name,
        type=member.type,
        value_type=member.value_type,
        access_mod=member.access_mod,
        writable=member.writable,
        write_only=entity.write_only,
        value_attribute=member.attribute,
        device_name=thing.name,
        group=thing.group,
    )


def _platform_principal(tenant: str) -> Principal:
    return Principal(
        kind=PrincipalKind.USER,
        tenant=tenant,
        subject=PLATFORM_USER_ID,
        name="workflow",
        super_admin=True,
    )
