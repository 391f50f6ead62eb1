"""Entities that people make themselves, which every user of the tenant sees; and those of flows.

Custom entities in MongoDB: a document of `things` each, its children among its members.

Beside what `services.device.members.entity.of_thing` names it has `tsl` and `hash`, as the
things of integrations have, `last`, the highest number that a child ever had, and `flow` when it
is the service of a flow, whose id is its identifier then.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from libs.common.contracts.flows import PutFlowService, RemoveFlowService, Settled
from libs.common.errors import Conflict, InvalidInput
from libs.common.http.console import ids_of
from libs.common.identity import Principal
from libs.common.identity.grants import GrantsOverRpc
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import KnownLimits
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Document, DuplicateKey, Mongo, Session
from libs.common.things import LAST_MEMBER, SYSTEM, number_of, thing_of
from services.device.entities.custom_model import flow_members, member_of, read_attributes, tsl_of
from services.device.entities.schemas import CreateEntity, DeleteEntities, EntityMeta, UpdateEntity
from services.device.entities.service import EntityService, meta_of, unknown_entity
from services.device.entities.tags import TagStore
from services.device.members.directory import EntityDirectory
from services.device.members.entity import Entity, EntityThing, of_thing, tsl_fields
from services.device.members.members import Member
from services.device.telemetry.latest_values import LatestValues
from services.device.things.deleted_things import RemovedThings
from services.device.things.thing_store import OwnThings

Change = Callable[[list[Member]], list[Member]]
"""What becomes of the members of a thing."""

T = TypeVar("T")


class CustomEntityStore:
    """Reads and writes custom entities."""

    def __init__(
        self,
        mongo: Mongo,
        own: OwnThings,
        latest: LatestValues,
        limits: KnownLimits,
        ids: IdAllocator,
    ) -> None:
        self._mongo = mongo
        self._own = own
        self._latest = latest
        self._ids = ids
        self._removed = RemovedThings(mongo.database)
        self._quota = Quota(own.collection, limits, "records", integration=SYSTEM)

    async def add(self, tenant: str, identifier: str, root: Member) -> Document:
        """Write a new entity; raise `Conflict` when the identifier is taken.

        Raises `TooManyRequests` when the tenant has as many as it may.
        """
        await self._quota.take(tenant)
        fields = fields_of(identifier, [root]) | {"last": 0}
        document = _new(await self._ids.take(), tenant, identifier, fields)
        try:
            await self._own.insert(document)
        except DuplicateKey as error:
            raise _taken(identifier) from error
        return document

    async def add_child(
        self, tenant: str, parent: str, make: Callable[[int], Member]
    ) -> tuple[Document, Member]:
        """Give an entity a child, with a number that no other one ever had."""

        async def add_child(session: Session) -> tuple[Document, Member]:
            known = await self._own.find_one(_with(tenant, parent), session)
            if known is None:
                raise InvalidInput("there is no such entity", field="parent_identifier")
            if "flow" in known:
                raise InvalidInput("belongs to a flow, change that", field="parent_identifier")
            members = stored_members(known)
            if known["last"] >= LAST_MEMBER:
                raise InvalidInput("has had too many children", field="parent_identifier")
            child = make(known["last"] + 1)
            _check_child(members, child)
            changes = fields_of(parent, [*members, child]) | {"last": child.number}
            return await self._own.change(known, changes, session), child

        return await self._mongo.transaction(add_child)

    async def change(self, tenant: str, thing_id: int, change: Change) -> Document | None:
        """Change the members of an entity; None when it is gone."""

        async def change_members(session: Session) -> Document | None:
            query = {"_id": thing_id, "tenant": tenant, "integration": SYSTEM}
            known = await self._own.find_one(query, session)
            if known is None or not known["identifier"]:
                return None
            changes = fields_of(known["identifier"], change(stored_members(known)))
            return await self._own.change(known, changes, session)

        return await self._mongo.transaction(change_members)

    async def delete(self, tenant: str, thing_ids: Sequence[int]) -> None:
        """Delete entities."""
        some = {"identifier": {"$ne": ""}, "_id": {"$in": list(thing_ids)}}
        await self._delete({"tenant": tenant, "integration": SYSTEM, **some})

    async def put_flow(self, wanted: PutFlowService) -> None:
        """Make the thing of a flow, or bring it up to date.

        An input keeps its number as long as it keeps its identifier. Raises `Conflict` when
        people have made an entity of this identifier.
        """
        identifier, thing_id = str(wanted.flow_id), await self._ids.take()

        async def put_service(session: Session) -> None:
            known = await self._own.find_one(_with(wanted.tenant, identifier), session)
            if known is not None and "flow" not in known:
                text = f"there is an entity {identifier} already, delete it"
                raise Conflict(text, field="name")
            before = stored_members(known) if known else []
            members, last = flow_members(wanted, before, known["last"] if known else 0)
            fields = fields_of(identifier, members) | {"last": last, "flow": wanted.flow_id}
            if known is None:
                new = _new(thing_id, wanted.tenant, identifier, fields)
                await self._own.insert(new, session)
            elif known["hash"] != fields["hash"] or known["members"] != fields["members"]:
                await self._own.change(known, fields, session)

        await self._mongo.transaction(put_service)

    async def remove_flow(self, tenant: str, flow_id: int) -> Document | None:
        """Delete the thing of a flow; what it was."""
        gone = await self._delete(_with(tenant, str(flow_id)) | {"flow": flow_id})
        return gone[0] if gone else None

    async def _delete(self, query: Document) -> list[Document]:
        """Delete things with their latest values; the rest of them goes within the hour."""

        async def delete_entities(session: Session) -> list[Document]:
            found = await self._own.delete(query, session)
            gone = [document["_id"] for document in found]
            await self._latest.forget_all(gone, session)
            await self._removed.add(gone, session)
            return found

        return await self._mongo.transaction(delete_entities)


def _with(tenant: str, identifier: str) -> dict[str, Any]:
    return {"tenant": tenant, "integration": SYSTEM, "identifier": identifier}


def _new(thing_id: int, tenant: str, identifier: str, fields: Document) -> Document:
    first = {"_id": thing_id, "createdAt": fields["updatedAt"]}
    return first | _with(tenant, identifier) | fields


def stored_members(document: Document) -> list[Member]:
    """The members of a thing that its document has."""
    return msgspec.convert(document["members"], list[Member])


def fields_of(identifier: str, members: Sequence[Member]) -> Document:
    """What a document has of a thing's members."""
    return {
        "members": msgspec.to_builtins(members),
        "updatedAt": datetime.now(UTC),
        **tsl_fields(tsl_of(identifier, members)),
    }


def _check_child(members: Sequence[Member], child: Member) -> None:
    root = next(member for member in members if not member.path)
    if root.value_type != "OBJECT":
        raise InvalidInput("is no OBJECT", field="parent_identifier")
    if root.type != child.type:
        raise InvalidInput(f"must be {root.type}, as that of the parent", field="type")
    if any(member.path == child.path for member in members):
        raise _taken(child.path)


def _taken(identifier: str) -> Conflict:
    return Conflict(f"there is an entity {identifier} already", field="identifier")


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
