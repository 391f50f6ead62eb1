"""Entities that people make themselves, which every user of the tenant sees; and those of flows."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.contracts.flows import PutFlowService, RemoveFlowService, Settled
from libs.common.errors import InvalidInput
from libs.common.http.console import ids_of
from libs.common.identity import Principal
from libs.common.things import number_of, thing_of
from services.device.entities.custom.attributes import read_attributes
from services.device.entities.custom.model import member_of
from services.device.entities.custom.store import Change, CustomEntityStore
from services.device.entities.schemas import (
    CreateEntity,
    DeleteEntities,
    EntityMeta,
    UpdateEntity,
)
from services.device.entities.service import EntityService, meta_of, unknown_entity
from services.device.entities.tags.store import TagStore
from services.device.members.directory import EntityDirectory
from services.device.members.entity import Entity, EntityThing, of_thing
from services.device.members.member import Member
from services.device.things.messages import GrantsOverRpc


@dataclass(frozen=True)
class CustomEntities:
    """Custom entities on behalf of users and flows."""

    store: CustomEntityStore
    entities: EntityService
    directory: EntityDirectory
    grants: GrantsOverRpc
    tags: TagStore

    async def create(self, principal: Principal, body: CreateEntity) -> EntityMeta:
        """Make an entity, or a child of one that is an OBJECT."""
        if body.parent_identifier is None:
            member = member_of(body, 0)
            document = await self.store.add(principal.tenant, body.identifier, member)
        else:
            document, member = await self.store.add_child(
                principal.tenant, body.parent_identifier, lambda number: member_of(body, number)
            )
        return meta_of(Entity(of_thing(document), member))

    async def update(self, principal: Principal, entity_id: int, body: UpdateEntity) -> None:
        """Change the name of an entity, and of a custom property the attributes.

        All other entities have the attributes of their TSL.
        """
        entity = await self.entities.find(principal, entity_id)
        if not entity.customized:
            await self.entities.rename(principal.tenant, entity, body.name)
            return
        number = number_of(entity_id)
        changes: dict[str, Any] = {"name": body.name}
        if body.value_attribute is not None and entity.member.type == "PROPERTY":
            kind = entity.member.value_type
            changes["attribute"] = read_attributes(body.value_attribute, kind)

        def change(members: list[Member]) -> list[Member]:
            return [
                msgspec.structs.replace(member, **changes) if member.number == number else member
                for member in members
            ]

        if await self.store.change(principal.tenant, entity.thing.id, change) is None:
            raise unknown_entity(entity_id)

    async def delete(self, principal: Principal, body: DeleteEntities) -> None:
        """Delete custom entities; all others, and what is unknown, are passed over.

        The service of a flow goes with the flow: it is refused, and then nothing is deleted.
        """
        found = await self.directory.by_ids(principal.tenant, ids_of(body.entity_ids))
        custom = {key: entity for key, entity in found.items() if entity.customized}
        for entity in custom.values():
            if entity.thing.flow is not None:
                raise InvalidInput(
                    f"{entity.key} belongs to flow {entity.thing.flow}, delete that",
                    field="entity_ids",
                    code="method_not_allowed",
                )
        whole = {one.thing.id: one.thing for one in custom.values() if not one.member.path}
        await self.store.delete(principal.tenant, list(whole))
        children: dict[int, set[int]] = defaultdict(set)
        for entity_id in custom:
            if thing_of(entity_id) not in whole:
                children[thing_of(entity_id)].add(number_of(entity_id))
        for thing_id, numbers in children.items():
            await self.store.change(principal.tenant, thing_id, _without(numbers))
        gone = set(custom).union(*map(_entity_ids, whole.values()))
        await self.tags.forget(sorted(gone))
        await self.grants.forget_entities(principal.tenant, sorted(gone))

    async def put_flow(self, wanted: PutFlowService) -> Settled:
        """Make the service of a flow like this, again too; `Conflict` when its key is taken."""
        await self.store.put_flow(wanted)
        return Settled()

    async def remove_flow(self, wanted: RemoveFlowService) -> Settled:
        """Remove the service of a flow, if there is one."""
        known = await self.store.remove_flow(wanted.tenant, wanted.flow_id)
        gone = _entity_ids(of_thing(known)) if known else []
        await self.tags.forget(gone)
        await self.grants.forget_entities(wanted.tenant, gone)
        return Settled()


def _entity_ids(thing: EntityThing) -> list[int]:
    return [Entity(thing, member).id for member in thing.members.members]


def _without(numbers: set[int]) -> Change:
    return lambda members: [member for member in members if member.number not in numbers]
