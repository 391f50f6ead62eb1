"""The things of flows: documents of `things` like those of custom entities.

`flow` tells them from what people make: its id, which is the identifier, too.
"""

from typing import Any

from libs.common.contracts.flows import FlowInput, PutFlowService
from libs.common.errors import Conflict
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Mongo, Session
from libs.common.things import SYSTEM
from services.device.custom_entities.model import member_of
from services.device.custom_entities.schemas import CreateEntity
from services.device.custom_entities.store import Document, fields_of, members_of
from services.device.entities.members import Member
from services.device.entities.things import Entity, of_thing
from services.device.things.removed import RemovedThings


class FlowServiceStore:
    """Reads and writes the things of flows."""

    def __init__(self, mongo: Mongo, ids: IdAllocator) -> None:
        self._mongo = mongo
        self._ids = ids
        self._things: Any = mongo.database["things"]
        self._latest: Any = mongo.database["latest"]
        self._removed = RemovedThings(mongo.database)

    async def put(self, wanted: PutFlowService) -> None:
        """Make the thing of a flow, or bring it up to date.

        An input keeps its number as long as it keeps its identifier. Raises `Conflict` when
        people have made an entity of this identifier.
        """
        thing_id = await self._ids.take()

        async def work(session: Session) -> None:
            key = _key(wanted.tenant, wanted.flow_id)
            known: Document | None = await self._things.find_one(key, session=session)
            if known is not None and "flow" not in known:
                text = f"there is an entity {key['identifier']} already, delete it"
                raise Conflict(text, field="name")
            fields = _fields(wanted, known)
            if known is None:
                fields |= {"_id": thing_id, "createdAt": fields["updatedAt"], **key}
                await self._things.insert_one(fields, session=session)
            elif known["hash"] != fields["hash"] or known["members"] != fields["members"]:
                change = {"$set": fields}
                await self._things.update_one({"_id": known["_id"]}, change, session=session)

        await self._mongo.transaction(work)

    async def remove(self, tenant: str, flow_id: int) -> list[int]:
        """Delete the thing of a flow; the ids of the entities that are gone."""
        query = _key(tenant, flow_id) | {"flow": flow_id}

        async def work(session: Session) -> Document | None:
            known: Document | None = await self._things.find_one_and_delete(query, session=session)
            if known is not None:
                await self._latest.delete_one({"_id": known["_id"]}, session=session)
                await self._removed.add([known["_id"]], session)
            return known

        known = await self._mongo.transaction(work)
        if known is None:
            return []
        thing = of_thing(known)
        return [Entity(thing, member).id for member in thing.members.members]


def _key(tenant: str, flow_id: int) -> dict[str, Any]:
    return {"tenant": tenant, "integration": SYSTEM, "identifier": str(flow_id)}


def _fields(wanted: PutFlowService, known: Document | None) -> dict[str, Any]:
    numbers = {one.path: one.number for one in (members_of(known) if known else ())}
    last: int = known["last"] if known else 0
    members = [_root(wanted)]
    for entry in wanted.inputs:
        number = numbers.get(entry.identifier, 0)
        if not number:
            last += 1
            number = last
        members.append(_input(wanted, entry, number))
    return fields_of(str(wanted.flow_id), members) | {"last": last, "flow": wanted.flow_id}


def _root(wanted: PutFlowService) -> Member:
    root = CreateEntity(
        identifier=str(wanted.flow_id),
        name=wanted.name,
        type="SERVICE",
        value_type="OBJECT",
        description=wanted.description or None,
    )
    return member_of(root, 0)


def _input(wanted: PutFlowService, entry: FlowInput, number: int) -> Member:
    child = CreateEntity(
        identifier=entry.identifier,
        name=entry.name,
        type="SERVICE",
        value_type=entry.type,
        parent_identifier=str(wanted.flow_id),
    )
    return member_of(child, number)
