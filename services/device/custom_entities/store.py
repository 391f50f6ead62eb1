"""Custom entities in MongoDB: a document of `things` each, its children among its members.

Beside what `services.device.entities.things.of_thing` names it has `tsl` and `hash`, as the
things of integrations have, and `last`, the highest number that a child ever had.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.common.errors import Conflict, InvalidInput
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import KnownLimits
from libs.common.store.mongo import DuplicateKey, Mongo, Session
from libs.common.things import LAST_MEMBER, SYSTEM
from services.device.custom_entities.model import document_of
from services.device.entities.members import Member
from services.device.entities.things import tsl_fields
from services.device.things.removed import RemovedThings

Document = dict[str, Any]

Change = Callable[[list[Member]], list[Member]]
"""What becomes of the members of a thing."""


class CustomEntityStore:
    """Reads and writes custom entities."""

    def __init__(self, mongo: Mongo, limits: KnownLimits) -> None:
        self._mongo = mongo
        self._things = mongo.database["things"]
        self._latest = mongo.database["latest"]
        self._removed = RemovedThings(mongo.database)
        self._quota = Quota(self._things, limits, "records", integration=SYSTEM)

    async def add(self, thing_id: int, tenant: str, identifier: str, root: Member) -> Document:
        """Write a new entity; raise `Conflict` when the identifier is taken.

        Raises `TooManyRequests` when the tenant has as many as it may.
        """
        await self._quota.take(tenant)
        fields = fields_of(identifier, [root])
        document = {
            "_id": thing_id,
            "tenant": tenant,
            "integration": SYSTEM,
            "identifier": identifier,
            "last": 0,
            "createdAt": fields["updatedAt"],
            **fields,
        }
        try:
            await self._things.insert_one(document)
        except DuplicateKey as error:
            raise _taken(identifier) from error
        return document

    async def add_child(
        self, tenant: str, parent: str, make: Callable[[int], Member]
    ) -> tuple[Document, Member]:
        """Give an entity a child, with a number that no other one ever had."""

        async def work(session: Session) -> tuple[Document, Member]:
            query = {"tenant": tenant, "integration": SYSTEM, "identifier": parent}
            known: Document | None = await self._things.find_one(query, session=session)
            if known is None:
                raise InvalidInput("there is no such entity", field="parent_identifier")
            if "flow" in known:
                raise InvalidInput("belongs to a flow, change that", field="parent_identifier")
            members = members_of(known)
            if known["last"] >= LAST_MEMBER:
                raise InvalidInput("has had too many children", field="parent_identifier")
            child = make(known["last"] + 1)
            _check_child(members, child)
            changes = fields_of(parent, [*members, child]) | {"last": child.number}
            await self._things.update_one({"_id": known["_id"]}, {"$set": changes}, session=session)
            return known | changes, child

        return await self._mongo.transaction(work)

    async def change(self, tenant: str, thing_id: int, change: Change) -> Document | None:
        """Change the members of an entity; None when it is gone."""

        async def work(session: Session) -> Document | None:
            query = {"_id": thing_id, "tenant": tenant, "integration": SYSTEM}
            known: Document | None = await self._things.find_one(query, session=session)
            if known is None or not known["identifier"]:
                return None
            changes = fields_of(known["identifier"], change(members_of(known)))
            await self._things.update_one({"_id": thing_id}, {"$set": changes}, session=session)
            return known | changes

        return await self._mongo.transaction(work)

    async def delete(self, tenant: str, thing_ids: Sequence[int]) -> None:
        """Delete entities with their latest values; the rest of them goes within the hour."""
        query = {"tenant": tenant, "integration": SYSTEM, "identifier": {"$ne": ""}}

        async def work(session: Session) -> None:
            wanted = {**query, "_id": {"$in": list(thing_ids)}}
            rows = await self._things.find(wanted, {"_id": 1}, session=session).to_list(None)
            ids = [row["_id"] for row in rows]
            gone = {"_id": {"$in": ids}}
            await self._things.delete_many(gone, session=session)
            await self._latest.delete_many(gone, session=session)
            await self._removed.add(ids, session)

        await self._mongo.transaction(work)


def members_of(document: Document) -> list[Member]:
    """The members of a thing that its document has."""
    return msgspec.convert(document["members"], list[Member])


def fields_of(identifier: str, members: Sequence[Member]) -> Document:
    """What a document has of a thing's members."""
    return {
        "members": msgspec.to_builtins(members),
        "updatedAt": datetime.now(UTC),
        **tsl_fields(document_of(identifier, members)),
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
