"""Tags of entities: operations, storage and errors.

`entity_tags`: `{_id, tenant, name, description, color, createdAt, updatedAt, mapped}`. `mapped`
grows when entities get the tag, so that this conflicts with a deletion of the tag.
`tagged_entities`: `{_id: entity id, tenant, tags: [ids]}`, for entities with tags.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
from pymongo import DeleteOne, UpdateOne

from libs.common.errors import InvalidInput, NotFound
from libs.common.http.console import Page, distinct_ids
from libs.common.identity import Principal
from libs.common.jobs import gather_limited
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import (
    Document,
    Mongo,
    Session,
    build_text_condition,
    find_page,
    raise_on_duplicate,
)
from libs.common.things import MAX_MEMBER_NUMBER, entity_id
from services.device.entities.schemas import (
    MAX_TAGS,
    MAX_TAGS_PER_ENTITY,
    EntityTag,
    FindTags,
    MapTags,
    SaveTag,
    TagResponse,
)
from services.device.entities.service import EntityService
from services.device.things.deleted_things import ThingDataStore


def tag_not_found(field: str) -> NotFound:
    """Return the error for a tag that does not exist."""
    return NotFound("the tag does not exist", field=field, code="entity_tag_not_found")


def tag_exists_error(name: str) -> InvalidInput:
    """Return the error for a name that another tag has."""
    text = f"tag {name} already exists"
    return InvalidInput(text, field="name", code="entity_tag_name_already_exists")


SORT_FIELD_BY_COLUMN = {
    "id": "_id",
    "name": "name",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}
"""Stored field of each sort key of tags."""
MAX_FOUND_ENTITIES = 100_000
"""Maximum entities that a search by tags finds."""
CONCURRENT_COUNTS = 8
"""Tags whose uses are counted at the same time."""
TagChange = Callable[[list[int]], list[int]]
"""Returns the new tags of an entity from its current tags."""


class Tag(msgspec.Struct, rename="camel", kw_only=True):
    """A tag of a tenant."""

    id: int = msgspec.field(name="_id")
    name: str
    description: str
    color: str
    created_at: datetime
    updated_at: datetime


class TagStore(ThingDataStore):
    """Reads and writes tags, and the tags of entities."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._tags = mongo.database["entity_tags"]
        self._tagged = mongo.database["tagged_entities"]
        self._ids = IdAllocator(mongo.database, "entity_tags", block=20)

    async def search(self, tenant: str, request: FindTags) -> tuple[list[Tag], int]:
        """Return a page of tags in order, and how many match."""
        query: Document = {"tenant": tenant}
        if request.keyword:
            text = build_text_condition(request.keyword)
            query["$or"] = [{"name": text}, {"description": text}]
        order = request.order(SORT_FIELD_BY_COLUMN)
        rows, total = await find_page(self._tags, query, order, request.skip, request.size)
        return msgspec.convert(rows, list[Tag]), total

    async def load_tags_by_id(self, tenant: str) -> dict[int, Tag]:
        """Return the tags of a tenant by id."""
        documents = await self._tags.find({"tenant": tenant}).to_list(None)
        return {tag.id: tag for tag in msgspec.convert(documents, list[Tag])}

    async def count(self, tenant: str) -> int:
        """Return the number of tags of a tenant."""
        return await self._tags.count_documents({"tenant": tenant})

    async def count_uses(self, tenant: str, ids: Collection[int]) -> dict[int, int]:
        """Return the number of entities with each tag."""
        queries = ({"tenant": tenant, "tags": tag_id} for tag_id in ids)
        counted = (partial(self._tagged.count_documents, query) for query in queries)
        counts = await gather_limited(CONCURRENT_COUNTS, counted)
        return dict(zip(ids, counts, strict=True))

    async def add(self, tenant: str, request: SaveTag) -> int:
        """Insert a tag and return its id.

        Raises `InvalidInput` for an existing name or too many tags.
        """
        if await self.count(tenant) >= MAX_TAGS:
            text = f"the tenant has {MAX_TAGS} tags, the maximum"
            raise InvalidInput(text, field="name", code="number_of_entity_tags_exceeded")
        tag_id, now = await self._ids.allocate(), datetime.now(UTC)
        tag = {"_id": tag_id, "tenant": tenant, "createdAt": now, **_tag_fields(request, now)}
        with raise_on_duplicate(tag_exists_error(request.name)):
            await self._tags.insert_one(tag)
        return tag_id

    async def update(self, tenant: str, tag_id: int, request: SaveTag) -> None:
        """Change a tag; raise `NotFound`, or `InvalidInput` for the name of another tag."""
        change = {"$set": _tag_fields(request, datetime.now(UTC))}
        with raise_on_duplicate(tag_exists_error(request.name)):
            result = await self._tags.update_one({"_id": tag_id, "tenant": tenant}, change)
        if not result.matched_count:
            raise tag_not_found("tag_id")

    async def delete(self, tenant: str, ids: Sequence[int]) -> None:
        """Delete tags, first from the list, then from entities.

        After an interruption, entities keep ids of deleted tags, which are ignored.
        """
        await self._tags.delete_many({"_id": {"$in": list(ids)}, "tenant": tenant})
        tag_filter = {"$in": list(ids)}
        await self._tagged.update_many(
            {"tenant": tenant, "tags": tag_filter}, {"$pull": {"tags": tag_filter}}
        )
        await self._tagged.delete_many({"tenant": tenant, "tags": []})

    async def find_tag_ids(self, tenant: str, entity_ids: Iterable[int]) -> dict[int, list[int]]:
        """Return tag ids by entity; entities without tags are missing."""
        query = {"_id": {"$in": list(entity_ids)}, "tenant": tenant}
        return {row["_id"]: row["tags"] async for row in self._tagged.find(query)}

    async def find_tagged_entities(
        self, tenant: str, operator: str, ids: Sequence[int]
    ) -> list[int]:
        """Return ids of entities with the tags that `operator` requires.

        At most `MAX_FOUND_ENTITIES` are returned. Operators are `ANY_EQUALS` (any of the tags),
        `CONTAINS` (all of the tags), `EQ` (no other tag), and `IS_NOT_EMPTY` (any tag at all).
        """
        conditions: Mapping[str, Document] = {
            "ANY_EQUALS": {"$in": ids},
            "CONTAINS": {"$all": ids},
            "EQ": {"$not": {"$elemMatch": {"$nin": ids}}},
            "IS_NOT_EMPTY": {"$exists": True},
        }
        query = {"tenant": tenant, "tags": conditions[operator]}
        cursor = self._tagged.find(query, {"_id": 1}, sort=[("_id", 1)], limit=MAX_FOUND_ENTITIES)
        return [row["_id"] async for row in cursor]

    async def change_tags(
        self, tenant: str, entity_ids: Sequence[int], added: Sequence[int], change: TagChange
    ) -> None:
        """Change the tags of entities in one transaction.

        Raises `NotFound` if a tag in `added` does not exist. An exception of `change` rolls back
        the transaction.
        """

        async def change_tags(session: Session) -> None:
            await self._block_tag_deletion(tenant, added, session)
            entity_filter = {"_id": {"$in": list(entity_ids)}, "tenant": tenant}
            rows = await self._tagged.find(entity_filter, session=session).to_list(None)
            current: Mapping[int, list[int]] = {row["_id"]: row["tags"] for row in rows}
            operations = [
                _write_operation(entity_id, tenant, after)
                for entity_id in entity_ids
                if (after := change(current.get(entity_id, []))) != current.get(entity_id, [])
            ]
            if operations:
                await self._tagged.bulk_write(operations, ordered=False, session=session)

        await self._mongo.transaction(change_tags)

    async def delete_for_entities(self, entity_ids: Sequence[int]) -> None:
        """Delete the tags of deleted entities."""
        await self._tagged.delete_many({"_id": {"$in": list(entity_ids)}})

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the tags of a thing's entities."""
        id_range = {"$gte": entity_id(thing_id, 0), "$lte": entity_id(thing_id, MAX_MEMBER_NUMBER)}
        await self._tagged.delete_many({"_id": id_range}, session=session)

    async def _block_tag_deletion(self, tenant: str, ids: Sequence[int], session: Session) -> None:
        if not ids:
            return
        query = {"_id": {"$in": list(ids)}, "tenant": tenant}
        result = await self._tags.update_many(query, {"$inc": {"mapped": 1}}, session=session)
        if result.matched_count < len(ids):
            raise tag_not_found("added_tag_ids")


def _tag_fields(request: SaveTag, now: datetime) -> Document:
    return {
        "name": request.name.strip(),
        "description": request.description or "",
        "color": request.color,
        "updatedAt": now,
    }


def _write_operation(entity: int, tenant: str, tags: Sequence[int]) -> UpdateOne | DeleteOne:
    if not tags:
        return DeleteOne({"_id": entity})
    return UpdateOne({"_id": entity}, {"$set": {"tenant": tenant, "tags": tags}}, upsert=True)


_REQUIRED_FIELDS_BY_OPERATION = {
    "ADD": ("added_tag_ids",),
    "OVERWRITE": ("added_tag_ids",),
    "REMOVE": ("removed_tag_ids",),
    "REPLACE": ("added_tag_ids", "removed_tag_ids"),
}
"""Fields of the request that each operation requires."""


class EntityTags:
    """Operations on tags, and on tags of entities."""

    def __init__(self, store: TagStore, entities: EntityService) -> None:
        self.store = store
        self._entities = entities

    async def search(self, principal: Principal, request: FindTags) -> Page[TagResponse]:
        """Return a page of tags with their numbers of entities."""
        tenant = principal.tenant
        found, total = await self.store.search(tenant, request)
        use_counts = await self.store.count_uses(tenant, [tag.id for tag in found])
        rows = [
            TagResponse.from_fields(tag, tagged_entities_count=use_counts[tag.id]) for tag in found
        ]
        return Page(page_size=request.size, page_number=request.number, total=total, content=rows)

    async def map_tags(self, principal: Principal, request: MapTags) -> None:
        """Change tags of entities; ignore hidden entities.

        Raises `InvalidInput` when an entity would have too many tags, `NotFound` for a deleted tag
        or when no entity remains. An error changes nothing.
        """
        for field in _REQUIRED_FIELDS_BY_OPERATION[request.operation]:
            if not getattr(request, field):
                raise InvalidInput(f"is required by {request.operation}", field=field)
        entities = await self._entities.find_visible_or_raise(
            principal, distinct_ids(request.entity_ids)
        )
        adds = "added_tag_ids" in _REQUIRED_FIELDS_BY_OPERATION[request.operation]
        added = distinct_ids(request.added_tag_ids or ()) if adds else []
        removed = frozenset(distinct_ids(request.removed_tag_ids or ()))

        def change(current: list[int]) -> list[int]:
            after = _apply_operation(request.operation, current, added, removed)
            if len(after) > max(MAX_TAGS_PER_ENTITY, len(current)):
                code = "number_of_tags_per_entity_exceeded"
                text = f"an entity can have at most {MAX_TAGS_PER_ENTITY} tags"
                raise InvalidInput(text, field="added_tag_ids", code=code)
            return after

        await self.store.change_tags(
            principal.tenant, [entity.id for entity in entities], added, change
        )

    async def find_tags(self, tenant: str, entity_ids: Iterable[int]) -> dict[int, list[EntityTag]]:
        """Return the tags of entities, by entity, in the order of their addition."""
        tags = await self.store.load_tags_by_id(tenant)
        if not tags:
            return {}
        responses = {tag.id: EntityTag.from_fields(tag) for tag in tags.values()}
        current = await self.store.find_tag_ids(tenant, entity_ids)
        return {
            entity: [responses[tag_id] for tag_id in ids if tag_id in responses]
            for entity, ids in current.items()
        }

    async def find_tagged_entities(
        self, tenant: str, operator: str, names: Collection[str]
    ) -> list[int]:
        """Return ids of entities with the named tags; see `TagStore.find_tagged_entities`."""
        tags = {tag.name: tag.id for tag in (await self.store.load_tags_by_id(tenant)).values()}
        ids = [tags[name] for name in dict.fromkeys(names) if name in tags]
        if operator == "CONTAINS" and len(ids) < len(set(names)):
            return []  # a requested tag does not exist
        return await self.store.find_tagged_entities(tenant, operator, ids)


def _apply_operation(
    operation: str, current: list[int], added: list[int], removed: frozenset[int]
) -> list[int]:
    """Return the ids of an entity's tags after an operation."""
    if operation == "OVERWRITE":
        return added
    if operation == "REPLACE" and removed.isdisjoint(current):
        return current
    remaining = (
        current if operation == "ADD" else [tag_id for tag_id in current if tag_id not in removed]
    )
    return remaining if operation == "REMOVE" else list(dict.fromkeys([*remaining, *added]))
