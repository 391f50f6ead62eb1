"""Things of integrations and custom entities in MongoDB, and names of entities.

These things are not devices. They report with the SN `~{id}`, and their document holds their TSL,
which is read for every batch, so that a change takes effect with the next report.

`entityNames` of a device or of a thing: names that users gave its entities, as JSON by path in the
order of paths. It is one text so that devices with equal members and names are counted together.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec
from pymongo import ReturnDocument

from libs.common.errors import InvalidInput
from libs.common.store.mongo import Collection, Database, Document, Mongo, Session, require_document
from libs.common.tsl import Tsl
from services.device.things.specifications import TslStore

THINGS_PER_ERASURE = 1000
"""Maximum things that are read together to remove their write-only values."""
MAY_HOLD_WRITE_ONLY = {"$expr": {"$ne": ["$erased", "$hash"]}}
"""The filter of things that may still hold write-only values of their TSL."""
_HEAD_PROJECTION = {"tenant": 1, "integration": 1, "hash": 1}


@dataclass(slots=True, frozen=True)
class StoredThing:
    """The thing of an integration, or a custom entity."""

    id: int
    tenant: str
    integration: str
    tsl: Tsl


class ThingStore:
    """The collection `things`; for its fields see `services.device.members.entity`."""

    def __init__(self, database: Database, tsls: TslStore) -> None:
        self._things = self.collection = database["things"]
        """The collection, for classes that count the things of a tenant."""
        self._tsls = tsls

    async def find(self, query: Document, session: Session | None = None) -> list[Document]:
        """Return the documents that match."""
        return await self._things.find(query, session=session).to_list(None)

    async def find_one(self, query: Document, session: Session | None = None) -> Document | None:
        """Return a document that matches, or None."""
        return await self._things.find_one(query, session=session)

    async def insert(self, document: Document, session: Session | None = None) -> None:
        """Insert a new thing; raise `DuplicateKey`."""
        await self._things.insert_one(document, session=session)

    async def update(self, document: Document, fields: Document, session: Session) -> Document:
        """Set fields of a thing; return the changed document."""
        await self._things.update_one({"_id": document["_id"]}, {"$set": fields}, session=session)
        return document | fields

    async def upsert(self, key: Document, fields: Document, creation_fields: Document) -> Document:
        """Set fields of the thing with this key, or create it with `creation_fields` too.

        Return the document. Raises `DuplicateKey` when another process creates it at the same time.
        """
        change = {"$set": fields, "$setOnInsert": creation_fields}
        return require_document(
            await self._things.find_one_and_update(
                key, change, upsert=True, return_document=ReturnDocument.AFTER
            )
        )

    async def delete(self, query: Document, session: Session) -> list[Document]:
        """Delete things; return the deleted documents."""
        documents = await self.find(query, session)
        ids = [document["_id"] for document in documents]
        await self._things.delete_many({"_id": {"$in": ids}}, session=session)
        return documents

    async def list_tenants_with_write_only_values(self) -> list[str]:
        """Return the tenants of things that may hold write-only values."""
        return list(await self._things.distinct("tenant", MAY_HOLD_WRITE_ONLY))

    async def list_with_write_only_values(self, tenant: str) -> list[Document]:
        """Return up to `THINGS_PER_ERASURE` documents of things that may hold write-only values."""
        return await self._things.find({"tenant": tenant, **MAY_HOLD_WRITE_ONLY}).to_list(
            THINGS_PER_ERASURE
        )

    async def mark_write_only_values_erased(self, document: Document) -> None:
        """Record that a thing holds no write-only values of its TSL."""
        same = {"_id": document["_id"], "hash": document["hash"]}
        await self._things.update_one(same, {"$set": {"erased": document["hash"]}})

    def build_stored_thing(self, document: Document) -> StoredThing:
        """Return the thing of a whole document."""
        tsl = self._tsls.find_cached(document["hash"])
        if tsl is None:
            tsl = self._tsls.compile(document["hash"], document["tsl"])
        return StoredThing(document["_id"], document["tenant"], document["integration"], tsl)

    async def find_things(self, ids: Iterable[int]) -> dict[int, StoredThing]:
        """Return the things with these ids, by id; unknown ids are missing."""
        query = {"_id": {"$in": list(ids)}, "hash": {"$exists": True}}
        heads = await self._things.find(query, _HEAD_PROJECTION).to_list(None)
        tsls = {head["hash"]: self._tsls.find_cached(head["hash"]) for head in heads}
        missing = [key for key, tsl in tsls.items() if tsl is None]
        if missing:
            query["hash"] = {"$in": missing}
            async for stored in self._things.find(query, {"hash": 1, "tsl": 1}):
                tsls[stored["hash"]] = self._tsls.compile(stored["hash"], stored["tsl"])
        return {
            head["_id"]: StoredThing(head["_id"], head["tenant"], head["integration"], tsl)
            for head in heads
            if (tsl := tsls[head["hash"]]) is not None  # None: changed between the two queries
        }

    async def list_ids(self, tenant: str, after: int, limit: int) -> list[int]:
        """Return up to `limit` ids of a tenant's things above `after`."""
        query = {"tenant": tenant, "_id": {"$gt": after}}
        cursor = self._things.find(query, {"_id": 1}, sort=[("_id", 1)], limit=limit)
        return [row["_id"] async for row in cursor]

    async def find_tenants(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the tenants of things by thing id."""
        cursor = self._things.find({"_id": {"$in": list(ids)}}, {"tenant": 1})
        return {row["_id"]: row["tenant"] async for row in cursor}


MAX_NAMED_ENTITIES = 100
"""Maximum entities of one thing that can have a name from users."""


class EntityNames:
    """Changes the names of entities in the documents of `devices` or of `things`."""

    def __init__(self, mongo: Mongo, things: Collection) -> None:
        self._mongo = mongo
        self._things = things

    async def change(self, tenant: str, thing_id: int, change: Callable[[str], str]) -> bool:
        """Replace the stored names of a thing by `change(names)`; return whether it exists."""
        query = {"_id": thing_id, "tenant": tenant}

        async def change_names(session: Session) -> bool:
            document = await self._things.find_one(query, {"entityNames": 1}, session=session)
            if document is None:
                return False
            names = {"entityNames": change(document.get("entityNames", ""))}
            update = {"$set" if names["entityNames"] else "$unset": names}
            now = {"$currentDate": {"updatedAt": True}}
            await self._things.update_one(query, update | now, session=session)
            return True

        return await self._mongo.transaction(change_names)


def parse_names(stored: str) -> dict[str, str]:
    """Return stored names of entities by path."""
    return msgspec.json.decode(stored, type=dict[str, str]) if stored else {}


def change_name(stored: str, path: str, name: str | None) -> str:
    """Return the stored names with `name` at `path`, or without a name there if it is None.

    Raises `InvalidInput` for more than `MAX_NAMED_ENTITIES` names.
    """
    names = parse_names(stored)
    names.pop(path, None)
    if name is not None:
        names[path] = name
    if len(names) > MAX_NAMED_ENTITIES:
        raise InvalidInput(
            f"at most {MAX_NAMED_ENTITIES} entities of a device can be renamed", field="name"
        )
    return msgspec.json.encode(dict(sorted(names.items()))).decode() if names else ""
