"""Custom entities of users and of flows, which every user of the tenant may see.

Each is a document of `things`; its children are members. A document has the fields that
`services.device.members.entity.thing_from_document` reads, and `tsl` and `hash`, like the things of
integrations. `last` is the highest number that a child ever had. For the service of a flow, `flow`
is set, and the id of the flow is the identifier.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from libs.common.contracts.flows import FlowServiceAnswer, PutFlowService, RemoveFlowService
from libs.common.errors import Conflict, InvalidInput
from libs.common.http.console import distinct_ids
from libs.common.identity import Principal
from libs.common.identity.grants import GrantsClient
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import LimitsCache
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Document, Mongo, Session, raise_on_duplicate
from libs.common.things import (
    MAX_MEMBER_NUMBER,
    SYSTEM_INTEGRATION,
    get_entity_thing_id,
    get_member_number,
)
from services.device.entities.custom_model import (
    build_flow_members,
    build_member,
    build_tsl,
    validate_attributes,
)
from services.device.entities.schemas import CreateEntity, DeleteEntities, EntityMeta, UpdateEntity
from services.device.entities.service import EntityService, entity_not_found, to_entity_meta
from services.device.entities.tags import TagStore
from services.device.members.directory import EntityDirectory
from services.device.members.entity import (
    Entity,
    EntityThing,
    stored_tsl_fields,
    thing_from_document,
)
from services.device.members.members import Member
from services.device.telemetry.latest_values import LatestValues
from services.device.things.deleted_things import DeletedThings
from services.device.things.thing_store import ThingStore

ChangeMembers = Callable[[list[Member]], list[Member]]
"""Returns the new members of a thing from its current ones."""

T = TypeVar("T")


class CustomEntityStore:
    """Reads and writes custom entities."""

    def __init__(
        self,
        mongo: Mongo,
        things: ThingStore,
        latest: LatestValues,
        limits: LimitsCache,
        ids: IdAllocator,
    ) -> None:
        self._mongo = mongo
        self._things = things
        self._latest = latest
        self._ids = ids
        self._deleted_things = DeletedThings(mongo.database)
        self._quota = Quota(things.collection, limits, "records", integration=SYSTEM_INTEGRATION)

    async def insert(self, tenant: str, identifier: str, root: Member) -> Document:
        """Insert an entity; raise `Conflict` when the identifier exists.

        Raises `TooManyRequests` when the tenant has reached its limit.
        """
        await self._quota.reserve(tenant)
        fields = build_member_fields(identifier, [root]) | {"last": 0}
        document = _new_document(await self._ids.allocate(), tenant, identifier, fields)
        with raise_on_duplicate(_identifier_exists_error(identifier)):
            await self._things.insert(document)
        return document

    async def add_child(
        self, tenant: str, parent: str, make: Callable[[int], Member]
    ) -> tuple[Document, Member]:
        """Add the child that `make` returns for a number that no child of the entity ever had.

        Raises `InvalidInput` for an unsuitable parent, `Conflict` when the child exists.
        """

        async def add_child(session: Session) -> tuple[Document, Member]:
            parent_document = await self._things.find_one(_identity_query(tenant, parent), session)
            if parent_document is None:
                raise InvalidInput("no entity has this identifier", field="parent_identifier")
            if "flow" in parent_document:
                raise InvalidInput("belongs to a flow: change the flow", field="parent_identifier")
            members = stored_members(parent_document)
            if parent_document["last"] >= MAX_MEMBER_NUMBER:
                raise InvalidInput(
                    "has reached the maximum number of children", field="parent_identifier"
                )
            child = make(parent_document["last"] + 1)
            _check_child(members, child)
            changes = build_member_fields(parent, [*members, child]) | {"last": child.number}
            return await self._things.update(parent_document, changes, session), child

        return await self._mongo.transaction(add_child)

    async def change_members(
        self, tenant: str, thing_id: int, change: ChangeMembers
    ) -> Document | None:
        """Change the members of an entity; return None when it does not exist."""

        async def change_members(session: Session) -> Document | None:
            query = {"_id": thing_id, "tenant": tenant, "integration": SYSTEM_INTEGRATION}
            document = await self._things.find_one(query, session)
            if document is None or not document["identifier"]:
                return None
            changes = build_member_fields(document["identifier"], change(stored_members(document)))
            return await self._things.update(document, changes, session)

        return await self._mongo.transaction(change_members)

    async def delete(self, tenant: str, thing_ids: Sequence[int]) -> None:
        """Delete custom entities with their children, given by thing ids."""
        deleted_query = {"identifier": {"$ne": ""}, "_id": {"$in": list(thing_ids)}}
        await self._delete({"tenant": tenant, "integration": SYSTEM_INTEGRATION, **deleted_query})

    async def put_flow_service(self, request: PutFlowService) -> None:
        """Create or update the entity of a flow.

        An input keeps its number while it keeps its identifier. Raises `Conflict` when users have
        created an entity with this identifier.
        """
        identifier, thing_id = str(request.flow_id), await self._ids.allocate()

        async def put_service(session: Session) -> None:
            document = await self._things.find_one(
                _identity_query(request.tenant, identifier), session
            )
            if document is not None and "flow" not in document:
                text = f"entity {identifier} already exists: delete it first"
                raise Conflict(text, field="name")
            before = stored_members(document) if document else []
            members, last = build_flow_members(request, before, document["last"] if document else 0)
            fields = build_member_fields(identifier, members) | {
                "last": last,
                "flow": request.flow_id,
            }
            if document is None:
                new = _new_document(thing_id, request.tenant, identifier, fields)
                await self._things.insert(new, session)
            elif document["hash"] != fields["hash"] or document["members"] != fields["members"]:
                await self._things.update(document, fields, session)

        await self._mongo.transaction(put_service)

    async def remove_flow_service(self, tenant: str, flow_id: int) -> Document | None:
        """Delete the entity of a flow; return its document, or None if it did not exist."""
        deleted = await self._delete(_identity_query(tenant, str(flow_id)) | {"flow": flow_id})
        return deleted[0] if deleted else None

    async def _delete(self, query: Document) -> list[Document]:
        """Delete things and their latest values; return the things.

        Other data is deleted within an hour.
        """

        async def delete_entities(session: Session) -> list[Document]:
            things = await self._things.delete(query, session)
            deleted_ids = [document["_id"] for document in things]
            await self._latest.delete_values(deleted_ids, session)
            await self._deleted_things.add(deleted_ids, session)
            return things

        return await self._mongo.transaction(delete_entities)


def _identity_query(tenant: str, identifier: str) -> dict[str, Any]:
    return {"tenant": tenant, "integration": SYSTEM_INTEGRATION, "identifier": identifier}


def _new_document(thing_id: int, tenant: str, identifier: str, fields: Document) -> Document:
    first = {"_id": thing_id, "createdAt": fields["updatedAt"]}
    return first | _identity_query(tenant, identifier) | fields


def stored_members(document: Document) -> list[Member]:
    """Return the members in a document."""
    return msgspec.convert(document["members"], list[Member])


def build_member_fields(identifier: str, members: Sequence[Member]) -> Document:
    """Return the fields of a document that depend on members."""
    return {
        "members": msgspec.to_builtins(members),
        "updatedAt": datetime.now(UTC),
        **stored_tsl_fields(build_tsl(identifier, members)),
    }


def _check_child(members: Sequence[Member], child: Member) -> None:
    root = next(member for member in members if not member.path)
    if root.value_type != "OBJECT":
        raise InvalidInput("must be an OBJECT", field="parent_identifier")
    if root.type != child.type:
        raise InvalidInput(f"must be {root.type}, the type of the parent", field="type")
    if any(member.path == child.path for member in members):
        raise _identifier_exists_error(child.path)


def _identifier_exists_error(identifier: str) -> Conflict:
    return Conflict(f"entity {identifier} already exists", field="identifier")


@dataclass(frozen=True)
class CustomEntities:
    """Operations of users and flows on custom entities."""

    store: CustomEntityStore
    entities: EntityService
    directory: EntityDirectory
    grants: GrantsClient
    tags: TagStore

    async def create(self, principal: Principal, body: CreateEntity) -> EntityMeta:
        """Create an entity, or a child of an OBJECT."""
        if body.parent_identifier is None:
            member = build_member(body, 0)
            document = await self.store.insert(principal.tenant, body.identifier, member)
        else:
            document, member = await self.store.add_child(
                principal.tenant, body.parent_identifier, lambda number: build_member(body, number)
            )
        return to_entity_meta(Entity(thing_from_document(document), member))

    async def update(self, principal: Principal, entity_id: int, body: UpdateEntity) -> None:
        """Rename an entity; set the attributes of a custom property.

        Attributes of other entities follow their TSL.
        """
        entity = await self.entities.find(principal, entity_id)
        if not entity.is_custom:
            await self.entities.rename(principal.tenant, entity, body.name)
            return
        number = get_member_number(entity_id)
        changes: dict[str, Any] = {"name": body.name}
        if body.value_attribute is not None and entity.member.type == "PROPERTY":
            kind = entity.member.value_type
            changes["attribute"] = validate_attributes(body.value_attribute, kind)

        def change(members: list[Member]) -> list[Member]:
            return [
                msgspec.structs.replace(member, **changes) if member.number == number else member
                for member in members
            ]

        if await self.store.change_members(principal.tenant, entity.thing.id, change) is None:
            raise entity_not_found(entity_id)

    async def delete(self, principal: Principal, body: DeleteEntities) -> None:
        """Delete custom entities; ignore others.

        The service of a flow rejects the request: it is deleted with its flow.
        """
        entities = await self.directory.find_by_ids(principal.tenant, distinct_ids(body.entity_ids))
        custom = {key: entity for key, entity in entities.items() if entity.is_custom}
        for entity in custom.values():
            if entity.thing.flow is not None:
                raise InvalidInput(
                    f"{entity.key} belongs to flow {entity.thing.flow}: delete the flow",
                    field="entity_ids",
                    code="method_not_allowed",
                )
        whole = {
            entity.thing.id: entity.thing for entity in custom.values() if not entity.member.path
        }
        await self.store.delete(principal.tenant, list(whole))
        children: dict[int, set[int]] = defaultdict(set)
        for entity_id in custom:
            if get_entity_thing_id(entity_id) not in whole:
                children[get_entity_thing_id(entity_id)].add(get_member_number(entity_id))
        for thing_id, numbers in children.items():
            await self.store.change_members(principal.tenant, thing_id, _without_numbers(numbers))
        deleted_ids = set(custom).union(*map(_entity_ids, whole.values()))
        await self.tags.delete_for_entities(sorted(deleted_ids))
        await self.grants.forget_entities(principal.tenant, sorted(deleted_ids))

    async def put_flow_service(self, request: PutFlowService) -> FlowServiceAnswer:
        """Create or update the service of a flow; raise `Conflict`."""
        await self.store.put_flow_service(request)
        return FlowServiceAnswer()

    async def remove_flow_service(self, request: RemoveFlowService) -> FlowServiceAnswer:
        """Delete the service of a flow, if it exists."""
        document = await self.store.remove_flow_service(request.tenant, request.flow_id)
        deleted_ids = _entity_ids(thing_from_document(document)) if document else []
        await self.tags.delete_for_entities(deleted_ids)
        await self.grants.forget_entities(request.tenant, deleted_ids)
        return FlowServiceAnswer()


def _entity_ids(thing: EntityThing) -> list[int]:
    return [Entity(thing, member).id for member in thing.members.members]


def _without_numbers(numbers: set[int]) -> ChangeMembers:
    return lambda members: [member for member in members if member.number not in numbers]
