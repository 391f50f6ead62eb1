"""Things that are no devices: an integration's own, and custom entities (`things`).

They report one way with devices, as `~{id}`, against the TSL that their document holds. It is
looked up for every batch, so that a change holds for the very next report.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pymongo import ReturnDocument

from libs.common.store.mongo import Database, Document, Session, present
from libs.common.tsl import Tsl
from services.device.things.tsls import Tsls

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
        return present(
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
