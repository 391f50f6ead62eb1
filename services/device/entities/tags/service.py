"""Tags on behalf of users: all of a tenant see which there are."""

from collections.abc import Collection, Iterable

from libs.common.clock import to_ms
from libs.common.errors import InvalidInput
from libs.common.http.console import Page, ids_of
from libs.common.identity import Principal
from services.device.entities.service import EntityService
from services.device.entities.tags.errors import too_many_of_entity
from services.device.entities.tags.schemas import (
    MOST_OF_ENTITY,
    EntityTag,
    FindTags,
    MapTags,
    ShownTag,
    WrittenTag,
)
from services.device.entities.tags.store import TagStore

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
        rows = [
            ShownTag(
                id=str(tag.id),
                name=tag.name,
                description=tag.description,
                color=tag.color,
                created_at=to_ms(tag.created_at),
                updated_at=to_ms(tag.updated_at),
                tagged_entities_count=uses[tag.id],
            )
            for tag in found
        ]
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

    async def of(self, tenant: str, entity_ids: Iterable[int]) -> dict[int, list[EntityTag]]:
        """The tags that entities carry, by entity and in the order they came."""
        tags = await self._store.all(tenant)
        if not tags:
            return {}
        shown = {
            tag.id: EntityTag(
                id=str(tag.id), name=tag.name, description=tag.description, color=tag.color
            )
            for tag in tags.values()
        }
        held = await self._store.of(tenant, entity_ids)
        return {entity: [shown[one] for one in ids if one in shown] for entity, ids in held.items()}

    async def tagged(self, tenant: str, operator: str, names: Collection[str]) -> list[int]:
        """The entities whose tags meet an operator, by names of tags; `MOST_FOUND` at most."""
        tags = {tag.name: tag.id for tag in (await self._store.all(tenant)).values()}
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
