"""Entities that are listed one by one, because no number of devices counts them.

These are the entities of integrations, custom entities, those that are granted by
themselves, and those of a search for certain ids.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import Grants
from libs.common.things import SYSTEM, thing_of
from services.device.entities.search.matching import KeyTest, finds
from services.device.entities.search.order import Order
from services.device.members.directory import EntityDirectory
from services.device.members.entity import Entity, EntityThing
from services.device.members.members import Member, MemberSet
from services.device.things.visibility import Condition


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One search in hand; what is not said filters nothing."""

    principal: Principal
    grants: Grants
    order: Order
    wants: Callable[[MemberSet], list[Member]]
    """The members of a model that pass."""
    keyword: KeyTest | None = None
    negated: bool = False
    """Whether those are wanted that the keyword does not match."""
    conditions: Sequence[Condition] = ()
    """On devices; `fits` is the same of things of every kind."""
    fits: Callable[[EntityThing], bool] = lambda _: True
    ids: Sequence[int] | None = None
    """The only entities that are wanted."""
    without: frozenset[int] = frozenset()
    """Entities that are not wanted."""
    customized: bool | None = None
    """True: only custom entities; false: all others."""

    @property
    def tenant(self) -> str:
        """The tenant whose entities are searched."""
        return self.principal.tenant


class Listed:
    """Lists what one user sees of what one search wants."""

    def __init__(self, directory: EntityDirectory, asked: Asked) -> None:
        self._directory = directory
        self._asked = asked
        self._grants = asked.grants
        self._customized = asked.customized
        self._customs = asked.principal.may(Function.ENTITY_CUSTOM_VIEW)

    async def find(self) -> list[Entity]:
        """Those of the ids that are asked for, or else all."""
        ids = self._asked.ids
        found = await (self._others() if ids is None else self.among(ids))
        return [entity for entity in found if entity.id not in self._asked.without]

    async def counted(self) -> list[Entity]:
        """Those `without` which the search is to do, and which numbers of devices count."""
        found = await self.among(sorted(self._asked.without))
        return [one for one in found if one.thing.device and one.thing.seen_with(self._grants)]

    async def among(self, ids: Sequence[int]) -> list[Entity]:
        """Those of some ids."""
        found = await self._directory.by_ids(self._asked.tenant, ids)
        rows = [one for one in found.values() if self._customized in (None, one.customized)]
        things = {one.thing.id: one.thing for one in rows}
        wanted = set(found)
        return [one for one in self._matching(things.values()) if one.id in wanted]

    async def _others(self) -> list[Entity]:
        """Those of things that are no devices, and those that are granted by themselves."""
        condition = self._condition()
        things = await self._directory.others(self._asked.tenant, condition) if condition else []
        if not self._customized and not self._grants.everything:
            single = {thing_of(one) for one in self._grants.resources.entities}
            known = await self._directory.things(self._asked.tenant, single) if single else {}
            things += [
                thing
                for thing in known.values()
                if thing.device and not thing.seen_with(self._grants)
            ]
        return self._matching(things)

    def _condition(self) -> dict[str, Any] | None:
        """Which things to look at; None for none at all."""
        grants = self._grants.resources
        custom = {"integration": SYSTEM}
        seen: list[dict[str, Any]] = []
        if self._customized is not False and self._customs:
            seen.append(custom)
        if not self._customized and self._grants.everything:
            seen.append({"integration": {"$ne": SYSTEM}})
        elif not self._customized and (grants.integrations or grants.entities):
            single = [thing_of(one) for one in grants.entities]
            mine = [{"integration": {"$in": list(grants.integrations)}}, {"_id": {"$in": single}}]
            seen.append({"integration": {"$ne": SYSTEM}, "$or": mine})
        return {"$or": seen} if seen else None

    def _matching(self, things: Iterable[EntityThing]) -> list[Entity]:
        asked = self._asked
        return [
            Entity(thing, member)
            for thing in things
            if asked.fits(thing)
            for member in asked.wants(thing.members)
            if asked.keyword is None or finds(asked.keyword, thing, member) != asked.negated
            if self._sees(Entity(thing, member))
        ]

    def _sees(self, entity: Entity) -> bool:
        """Whether a search shows it: custom entities need a function, and no grant."""
        return self._customs if entity.customized else entity.seen_with(self._grants)
