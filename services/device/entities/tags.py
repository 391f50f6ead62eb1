"""Tags of entities: operations, storage and errors.

Tags in MongoDB.

`entity_tags`: `{_id, tenant, name, description, color, createdAt, updatedAt, mapped}`; `mapped`
grows with every addition to entities, so that adding a tag and deleting it conflict.
`tagged_entities`: `{_id: entity id, tenant, tags: [ids]}`, of entities that have any.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
from pymongo import DeleteOne, UpdateOne

from libs.common.errors import InvalidInput, NotFound
from libs.common.http.console import Page, ids_of
from libs.common.identity import Principal
from libs.common.jobs import gather_limited
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Document, DuplicateKey, Mongo, Session, containing, find_page
from libs.common.things import LAST_MEMBER, entity_id
from services.device.entities.schemas import (
    MOST_OF_ENTITY,
    MOST_TAGS,
    EntityTag,
    FindTags,
    MapTags,
    ShownTag,
    WrittenTag,
)
from services.device.entities.service import EntityService
from services.device.things.deleted_things import ThingDataStore


def tag_not_found(field: str) -> NotFound:
    """There is no such tag, or none any more."""
    return NotFound("there is no such tag", field=field, code="entity_tag_not_found")


def tag_exists(name: str) -> InvalidInput:
    """A name is taken."""
    text = f"there is a tag {name} already"
    return InvalidInput(text, field="name", code="entity_tag_name_already_exists")


def too_many_tags(most: int) -> InvalidInput:
    """A tenant has as many as it may."""
    text = f"there are at most {most} tags"
    return InvalidInput(text, field="name", code="number_of_entity_tags_exceeded")


def too_many_of_entity(most: int) -> InvalidInput:
    """An entity would have more than it may."""
    text = f"an entity has at most {most} tags"
    return InvalidInput(text, field="added_tag_ids", code="number_of_tags_per_entity_exceeded")


COLUMNS = {
    "id": "_id",
    "name": "name",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}
"""What tags may be sorted by."""
MOST_FOUND = 100_000
"""Entities that a search by tags finds at most."""
AT_ONCE = 8
"""Tags of one request whose uses are counted at a time."""
Change = Callable[[list[int]], list[int]]
"""The tags that an entity is to have, of those that it has."""


class Tag(msgspec.Struct, rename="camel", kw_only=True):
    """A tag of a tenant."""

    id: int = msgspec.field(name="_id")
    name: str
    description: str
    color: str
    created_at: datetime
    updated_at: datetime


class TagStore(ThingDataStore):
    """The collections `entity_tags` and `tagged_entities`."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._tags = mongo.database["entity_tags"]
        self._tagged = mongo.database["tagged_entities"]
        self._ids = IdAllocator(mongo.database, "entity_tags", block=20)

    async def search(self, tenant: str, wanted: FindTags) -> tuple[list[Tag], int]:
        """A page of the tags, in order, and how many match in all."""
        query: Document = {"tenant": tenant}
        if wanted.keyword:
            text = containing(wanted.keyword)
            query["$or"] = [{"name": text}, {"description": text}]
        order = wanted.order(COLUMNS)
        found, total = await find_page(self._tags, query, order, wanted.skip, wanted.size)
        return msgspec.convert(found, list[Tag]), total

    async def tags_by_id(self, tenant: str) -> dict[int, Tag]:
        """The tags of a tenant, by id."""
        found = await self._tags.find({"tenant": tenant}).to_list(None)
        return {tag.id: tag for tag in msgspec.convert(found, list[Tag])}

    async def count(self, tenant: str) -> int:
        """How many tags a tenant has."""
        return await self._tags.count_documents({"tenant": tenant})

    async def uses(self, tenant: str, ids: Collection[int]) -> dict[int, int]:
        """How many entities have each of some tags."""
        queries = ({"tenant": tenant, "tags": one} for one in ids)
        counted = (partial(self._tagged.count_documents, query) for query in queries)
        counts = await gather_limited(AT_ONCE, counted)
        return dict(zip(ids, counts, strict=True))

    async def add(self, tenant: str, wanted: WrittenTag) -> int:
        """Make a tag; raise `InvalidInput` when there is one of the name, or too many."""
        if await self.count(tenant) >= MOST_TAGS:
            raise too_many_tags(MOST_TAGS)
        tag_id, now = await self._ids.take(), datetime.now(UTC)
        tag = {"_id": tag_id, "tenant": tenant, "createdAt": now, **_fields(wanted, now)}
        try:
            await self._tags.insert_one(tag)
        except DuplicateKey as error:
            raise tag_exists(wanted.name) from error
        return tag_id

    async def update(self, tenant: str, tag_id: int, wanted: WrittenTag) -> None:
        """Change a tag; raise `NotFound` or `InvalidInput`."""
        change = {"$set": _fields(wanted, datetime.now(UTC))}
        try:
            found = await self._tags.update_one({"_id": tag_id, "tenant": tenant}, change)
        except DuplicateKey as error:
            raise tag_exists(wanted.name) from error
        if not found.matched_count:
            raise tag_not_found("tag_id")

    async def delete(self, tenant: str, ids: Sequence[int]) -> None:
        """Delete tags, first from the list and then from entities.

        Should that break off, entities have ids of tags that nobody sees any more.
        """
        await self._tags.delete_many({"_id": {"$in": list(ids)}, "tenant": tenant})
        some = {"$in": list(ids)}
        await self._tagged.update_many({"tenant": tenant, "tags": some}, {"$pull": {"tags": some}})
        await self._tagged.delete_many({"tenant": tenant, "tags": []})

    async def find_tag_ids(self, tenant: str, entity_ids: Iterable[int]) -> dict[int, list[int]]:
        """The tags of entities, by entity; one without any is missing."""
        query = {"_id": {"$in": list(entity_ids)}, "tenant": tenant}
        return {row["_id"]: row["tags"] async for row in self._tagged.find(query)}

    async def tagged(self, tenant: str, operator: str, ids: Sequence[int]) -> list[int]:
        """The entities whose tags meet an operator, by id; `MOST_FOUND` at most.

        One of some tags, all of them, none but them, or any tag at all.
        """
        held: Mapping[str, Document] = {
            "ANY_EQUALS": {"$in": ids},
            "CONTAINS": {"$all": ids},
            "EQ": {"$not": {"$elemMatch": {"$nin": ids}}},
            "IS_NOT_EMPTY": {"$exists": True},
        }
        query = {"tenant": tenant, "tags": held[operator]}
        found = self._tagged.find(query, {"_id": 1}, sort=[("_id", 1)], limit=MOST_FOUND)
        return [row["_id"] async for row in found]

    async def map(
        self, tenant: str, entity_ids: Sequence[int], added: Sequence[int], change: Change
    ) -> None:
        """Change the tags of entities in one transaction; raise `NotFound` without the `added`.

        Whatever `change` raises leaves all as it is.
        """

        async def change_tags(session: Session) -> None:
            await self._note_use(tenant, added, session)
            some = {"_id": {"$in": list(entity_ids)}, "tenant": tenant}
            rows = await self._tagged.find(some, session=session).to_list(None)
            held: Mapping[int, list[int]] = {row["_id"]: row["tags"] for row in rows}
            operations = [
                _operation(one, tenant, after)
                for one in entity_ids
                if (after := change(held.get(one, []))) != held.get(one, [])
            ]
            if operations:
                await self._tagged.bulk_write(operations, ordered=False, session=session)

        await self._mongo.transaction(change_tags)

    async def forget(self, entity_ids: Sequence[int]) -> None:
        """Entities are gone."""
        await self._tagged.delete_many({"_id": {"$in": list(entity_ids)}})

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the tags of a thing's entities."""
        mine = {"$gte": entity_id(thing_id, 0), "$lte": entity_id(thing_id, LAST_MEMBER)}
        await self._tagged.delete_many({"_id": mine}, session=session)

    async def _note_use(self, tenant: str, ids: Sequence[int], session: Session) -> None:
        if not ids:
            return
        query = {"_id": {"$in": list(ids)}, "tenant": tenant}
        found = await self._tags.update_many(query, {"$inc": {"mapped": 1}}, session=session)
        if found.matched_count < len(ids):
            raise tag_not_found("added_tag_ids")


def _fields(wanted: WrittenTag, now: datetime) -> Document:
    return {
        "name": wanted.name.strip(),
        "description": wanted.description or "",
        "color": wanted.color,
        "updatedAt": now,
    }


def _operation(entity: int, tenant: str, tags: Sequence[int]) -> UpdateOne | DeleteOne:
    if not tags:
        return DeleteOne({"_id": entity})
    return UpdateOne({"_id": entity}, {"$set": {"tenant": tenant, "tags": tags}}, upsert=True)


_NEEDS = {
    "ADD": ("added_tag_ids",),
    "OVERWRITE": ("added_tag_ids",),
    "REMOVE": ("removed_tag_ids",),
    "REPLACE": ("added_tag_ids", "removed_tag_ids"),
}
"""Which fields an operation cannot do without."""


class EntityTags:
    """Makes and lists tags, and puts them on entities."""

    def __init__(self, store: TagStore, entities: EntityService) -> None:
        self._store = store
        self._entities = entities

    async def search(self, principal: Principal, wanted: FindTags) -> Page[ShownTag]:
        """A page of the tags, with the number of the entities that carry each."""
        tenant = principal.tenant
        found, total = await self._store.search(tenant, wanted)
        uses = await self._store.uses(tenant, [tag.id for tag in found])
        rows = [ShownTag.from_fields(tag, tagged_entities_count=uses[tag.id]) for tag in found]
        return Page(page_size=wanted.size, page_number=wanted.number, total=total, content=rows)

    async def count(self, principal: Principal) -> int:
        """How many there are."""
        return await self._store.count(principal.tenant)

    async def create(self, principal: Principal, wanted: WrittenTag) -> int:
        """Make a tag; raise `InvalidInput` when there is one of the name, or too many."""
        return await self._store.add(principal.tenant, wanted)

    async def update(self, principal: Principal, tag_id: int, wanted: WrittenTag) -> None:
        """Change a tag; raise `NotFound` or `InvalidInput`."""
        await self._store.update(principal.tenant, tag_id, wanted)

    async def delete(self, principal: Principal, ids: Iterable[int]) -> None:
        """Delete tags, from entities too; unknown ids are passed over."""
        await self._store.delete(principal.tenant, ids_of(list(ids)))

    async def map(self, principal: Principal, wanted: MapTags) -> None:
        """Put tags on entities or take them off; those that the user does not see are left out.

        Raises `InvalidInput` when one would have too many, and `NotFound` for a tag that is gone
        or when no entity is left; nothing is changed then.
        """
        for field in _NEEDS[wanted.operation]:
            if not getattr(wanted, field):
                raise InvalidInput(f"is required by {wanted.operation}", field=field)
        entities = await self._entities.find_all(principal, ids_of(wanted.entity_ids))
        adds = "added_tag_ids" in _NEEDS[wanted.operation]
        added = ids_of(wanted.added_tag_ids or ()) if adds else []
        removed = frozenset(ids_of(wanted.removed_tag_ids or ()))

        def change(held: list[int]) -> list[int]:
            after = _mapped(wanted.operation, held, added, removed)
            if len(after) > max(MOST_OF_ENTITY, len(held)):
                raise too_many_of_entity(MOST_OF_ENTITY)
            return after

        await self._store.map(principal.tenant, [one.id for one in entities], added, change)

    async def find_tags(self, tenant: str, entity_ids: Iterable[int]) -> dict[int, list[EntityTag]]:
        """The tags that entities carry, by entity and in the order they came."""
        tags = await self._store.tags_by_id(tenant)
        if not tags:
            return {}
        shown = {tag.id: EntityTag.from_fields(tag) for tag in tags.values()}
        held = await self._store.find_tag_ids(tenant, entity_ids)
        return {entity: [shown[one] for one in ids if one in shown] for entity, ids in held.items()}

    async def tagged(self, tenant: str, operator: str, names: Collection[str]) -> list[int]:
        """The entities whose tags meet an operator, by names of tags; `MOST_FOUND` at most."""
        tags = {tag.name: tag.id for tag in (await self._store.tags_by_id(tenant)).values()}
        ids = [tags[name] for name in dict.fromkeys(names) if name in tags]
        if operator == "CONTAINS" and len(ids) < len(set(names)):
            return []  # no entity has a tag that is not there
        return await self._store.tagged(tenant, operator, ids)


def _mapped(
    operation: str, held: list[int], added: list[int], removed: frozenset[int]
) -> list[int]:
    """The tags that an entity is to have."""
    if operation == "OVERWRITE":
        return added
    if operation == "REPLACE" and removed.isdisjoint(held):
        return held
    left = held if operation == "ADD" else [one for one in held if one not in removed]
    return left if operation == "REMOVE" else list(dict.fromkeys([*left, *added]))
