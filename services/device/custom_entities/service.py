"""What people may do with entities of their own making; every user of the tenant sees them."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from libs.common.errors import InvalidInput, NotFound
from libs.common.http.console import ids_of
from libs.common.identity import Principal
from libs.common.store.ids import IdAllocator
from libs.common.things import number_of, thing_of
from services.device.custom_entities.model import member_of
from services.device.custom_entities.schemas import CreateEntity, DeleteEntities, RenameEntity
from services.device.custom_entities.store import Change, Document
from services.device.entities.members import Member
from services.device.entities.schemas import EntityMeta
from services.device.entities.shown import meta_of
from services.device.entities.things import Entity, of_thing


class Store(Protocol):
    """What the service needs of its store."""

    async def add(self, thing_id: int, tenant: str, identifier: str, root: Member) -> Document:
        """Write a new entity."""

    async def add_child(
        self, tenant: str, parent: str, make: Callable[[int], Member]
    ) -> tuple[Document, Member]:
        """Give an entity a child."""

    async def change(self, tenant: str, thing_id: int, change: Change) -> Document | None:
        """Change the members of an entity."""

    async def delete(self, tenant: str, thing_ids: Sequence[int]) -> None:
        """Delete entities."""


class Finder(Protocol):
    """Finds entities on behalf of users."""

    async def find(self, principal: Principal, entity_id: int) -> Entity:
        """An entity that the user sees."""


class Directory(Protocol):
    """Finds entities, whoever may see them."""

    async def by_ids(self, tenant: str, ids: Sequence[int]) -> dict[int, Entity]:
        """The entities of `ids`; what is unknown is missing."""


class Grants(Protocol):
    """Keeps grants."""

    async def forget_entities(self, tenant: str, ids: Sequence[int]) -> None:
        """They are gone, so are their grants."""


class CustomEntities:
    """Custom entities on behalf of users."""

    def __init__(
        self, store: Store, entities: Finder, directory: Directory, ids: IdAllocator, grants: Grants
    ) -> None:
        self._store = store
        self._entities = entities
        self._directory = directory
        self._ids = ids
        self._grants = grants

    async def create(self, principal: Principal, body: CreateEntity) -> EntityMeta:
        """Make an entity, or a child of one that is an OBJECT."""
        if body.parent_identifier is None:
            root = member_of(body, 0)
            thing_id = await self._ids.take()
            made = await self._store.add(thing_id, principal.tenant, body.identifier, root)
            return meta_of(Entity(of_thing(made), root))
        document, child = await self._store.add_child(
            principal.tenant, body.parent_identifier, lambda number: member_of(body, number)
        )
        return meta_of(Entity(of_thing(document), child))

    async def rename(self, principal: Principal, entity_id: int, body: RenameEntity) -> None:
        """Give a custom entity another name; all others have those of their TSL."""
        entity = await self._entities.find(principal, entity_id)
        if not entity.customized:
            raise InvalidInput(
                "only custom entities have names of their own",
                field="entity_id",
                code="method_not_allowed",
            )
        number = number_of(entity_id)

        def change(members: list[Member]) -> list[Member]:
            return [
                msgspec.structs.replace(one, name=body.name) if one.number == number else one
                for one in members
            ]

        if await self._store.change(principal.tenant, entity.thing.id, change) is None:
            raise NotFound(f"entity {entity_id} not found", field="entity_id")

    async def delete(self, principal: Principal, body: DeleteEntities) -> None:
        """Delete custom entities; all others, and what is unknown, are passed over.

        The service of a flow goes with the flow: it is refused, and then nothing is deleted.
        """
        ids = ids_of(body.entity_ids)
        found = await self._directory.by_ids(principal.tenant, ids)
        custom = {key: one for key, one in found.items() if one.customized}
        for one in custom.values():
            if one.thing.flow is not None:
                raise InvalidInput(
                    f"{one.key} belongs to flow {one.thing.flow}, delete that",
                    field="entity_ids",
                    code="method_not_allowed",
                )
        whole = [one.thing.id for one in custom.values() if not one.member.path]
        await self._store.delete(principal.tenant, whole)
        children: dict[int, set[int]] = defaultdict(set)
        for entity_id in custom:
            if thing_of(entity_id) not in whole:
                children[thing_of(entity_id)].add(number_of(entity_id))
        for thing_id, numbers in children.items():
            await self._store.change(principal.tenant, thing_id, _without(numbers))
        gone = set(custom)
        for one in custom.values():
            if not one.member.path:
                gone |= {Entity(one.thing, member).id for member in one.thing.members.members}
        await self._grants.forget_entities(principal.tenant, sorted(gone))


def _without(numbers: set[int]) -> Change:
    def change(members: list[Member]) -> list[Member]:
        return [one for one in members if one.number not in numbers]

    return change
