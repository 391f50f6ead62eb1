"""Things of integrations that are no devices, and names of entities, in MongoDB.

They report one way with devices, as `~{id}`, against the TSL that their document holds. It is
looked up for every batch, so that a change holds for the very next report.

What users call the entities of a thing, in place of what its TSL calls them.

`entityNames` of a device, or of an integration's own thing: JSON of names by path, in the order of
paths. It is one text, so that devices with the same members and names are counted together.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec
from pymongo import ReturnDocument

from libs.common.errors import InvalidInput
from libs.common.store.mongo import Collection, Database, Document, Mongo, Session, require_document
from libs.common.tsl import Tsl
from services.device.things.specifications import Tsls

ERASED = 1000
NOT_ERASED = {"$expr": {"$ne": ["$erased", "$hash"]}}
"""Things that are looked at together for values which must not be read."""
_FIELDS = {"tenant": 1, "integration": 1, "hash": 1}


@dataclass(slots=True, frozen=True)
class OwnThing:
    """A thing that is no device."""

    id: int
    tenant: str
    integration: str
    tsl: Tsl


class OwnThings:
    """The collection `things`; what a document has says `services.device.members.entity`."""

    def __init__(self, database: Database, tsls: Tsls) -> None:
        self._things = self.collection = database["things"]
        """For who counts what a tenant has."""
        self._tsls = tsls

    async def find(self, query: Document, session: Session | None = None) -> list[Document]:
        """Whole documents."""
        return await self._things.find(query, session=session).to_list(None)

    async def find_one(self, query: Document, session: Session | None = None) -> Document | None:
        """A whole document."""
        return await self._things.find_one(query, session=session)

    async def insert(self, document: Document, session: Session | None = None) -> None:
        """Write a new thing; raises `DuplicateKey`."""
        await self._things.insert_one(document, session=session)

    async def change(self, known: Document, fields: Document, session: Session) -> Document:
        """Change fields of a thing; what it is then."""
        await self._things.update_one({"_id": known["_id"]}, {"$set": fields}, session=session)
        return known | fields

    async def put(self, key: Document, fields: Document, first: Document) -> Document:
        """Change the thing with this key, or make it with `first` besides; what it is then.

        Raises `DuplicateKey` when somebody else makes it this moment.
        """
        change = {"$set": fields, "$setOnInsert": first}
        return require_document(
            await self._things.find_one_and_update(
                key, change, upsert=True, return_document=ReturnDocument.AFTER
            )
        )

    async def delete(self, query: Document, session: Session) -> list[Document]:
        """Delete things; what they were."""
        found = await self.find(query, session)
        gone = {"_id": {"$in": [document["_id"] for document in found]}}
        await self._things.delete_many(gone, session=session)
        return found

    async def not_erased_tenants(self) -> list[str]:
        """Return the tenants of things that `not_erased` returns."""
        return list(await self._things.distinct("tenant", NOT_ERASED))

    async def not_erased(self, tenant: str) -> list[Document]:
        """Return whole documents of things that may have values which their TSL conceals."""
        return await self._things.find({"tenant": tenant, **NOT_ERASED}).to_list(ERASED)

    async def erased(self, document: Document) -> None:
        """Note that a thing has no values which its TSL conceals."""
        same = {"_id": document["_id"], "hash": document["hash"]}
        await self._things.update_one(same, {"$set": {"erased": document["hash"]}})

    def thing(self, document: Document) -> OwnThing:
        """The thing that a whole document is."""
        tsl = self._tsls.known(document["hash"])
        if tsl is None:
            tsl = self._tsls.compiled(document["hash"], document["tsl"])
        return OwnThing(document["_id"], document["tenant"], document["integration"], tsl)

    async def of(self, ids: Iterable[int]) -> dict[int, OwnThing]:
        """The things of `ids`; what is unknown is missing."""
        query = {"_id": {"$in": list(ids)}, "hash": {"$exists": True}}
        heads = await self._things.find(query, _FIELDS).to_list(None)
        tsls = {head["hash"]: self._tsls.known(head["hash"]) for head in heads}
        missing = [key for key, tsl in tsls.items() if tsl is None]
        if missing:
            query["hash"] = {"$in": missing}
            async for stored in self._things.find(query, {"hash": 1, "tsl": 1}):
                tsls[stored["hash"]] = self._tsls.compiled(stored["hash"], stored["tsl"])
        return {
            head["_id"]: OwnThing(head["_id"], head["tenant"], head["integration"], tsl)
            for head in heads
            if (tsl := tsls[head["hash"]]) is not None  # else changed between the two readings
        }

    async def after(self, tenant: str, after: int, limit: int) -> list[int]:
        """Things of a tenant by id, behind `after`."""
        query = {"tenant": tenant, "_id": {"$gt": after}}
        found = self._things.find(query, {"_id": 1}, sort=[("_id", 1)], limit=limit)
        return [row["_id"] async for row in found]

    async def tenants_of(self, ids: Iterable[int]) -> dict[int, str]:
        """The tenants of things, by id."""
        found = self._things.find({"_id": {"$in": list(ids)}}, {"tenant": 1})
        return {row["_id"]: row["tenant"] async for row in found}


MOST_NAMES = 100
"""Entities of one thing that users may call otherwise."""


class EntityNames:
    """The names in a collection of things."""

    def __init__(self, mongo: Mongo, things: Collection) -> None:
        self._mongo = mongo
        self._things = things

    async def change(self, tenant: str, thing_id: int, change: Callable[[str], str]) -> bool:
        """Change the names of a thing; whether it is there."""
        query = {"_id": thing_id, "tenant": tenant}

        async def work(session: Session) -> bool:
            found = await self._things.find_one(query, {"entityNames": 1}, session=session)
            if found is None:
                return False
            names = {"entityNames": change(found.get("entityNames", ""))}
            update = {"$set" if names["entityNames"] else "$unset": names}
            now = {"$currentDate": {"updatedAt": True}}
            await self._things.update_one(query, update | now, session=session)
            return True

        return await self._mongo.transaction(work)


def names_of(stored: str) -> dict[str, str]:
    """Names by path."""
    return msgspec.json.decode(stored, type=dict[str, str]) if stored else {}


def with_name(stored: str, path: str, name: str | None) -> str:
    """The names with that of a path, or without it; raise `InvalidInput` for too many."""
    names = names_of(stored)
    names.pop(path, None)
    if name is not None:
        names[path] = name
    if len(names) > MOST_NAMES:
        text = f"users may call at most {MOST_NAMES} entities of a device otherwise"
        raise InvalidInput(text, field="name")
    return msgspec.json.encode(dict(sorted(names.items()))).decode() if names else ""
