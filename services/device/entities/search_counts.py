"""Counts of entities in a search, and entities that are listed one by one.

Entities that are listed one by one, because no number of devices counts them.

These are the entities of integrations, custom entities, those that are granted by
themselves, and those of a search for certain ids.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import Grants
from libs.common.things import SYSTEM, thing_of
from services.device.entities.advanced_search import Group, Order
from services.device.entities.search_filters import KeyTest, finds
from services.device.members.directory import EntityDirectory
from services.device.members.entity import Entity, EntityThing
from services.device.members.members import Member, MemberSet
from services.device.things.model import ModelKey
from services.device.things.visibility import Condition

Counts = Mapping[ModelKey, int]
"""Devices by model."""


@dataclass(frozen=True)
class DeviceCounts:
    """Numbers of visible devices, by model."""

    all: Counts
    """Of all of them."""
    matching: Counts = field(default_factory=dict)
    """Whose every entity the keyword matches."""
    ending: Sequence[tuple[str, Counts]] = ()
    """Of the others: those whose keys end as a keyword's first part, with its last part."""


class Pools:
    """The members that a search wants of each model, in groups and in order.

    With `negated` those are wanted that the keyword does not match; `without` are entities of
    devices that are not wanted, though all else of the search matches them.
    """

    def __init__(
        self,
        wanted: Mapping[ModelKey, Sequence[Member]],
        order: Order,
        keyword: KeyTest | None,
        *,
        negated: bool = False,
        without: Sequence[Entity] = (),
    ) -> None:
        self._keyword = keyword
        self._negated = negated
        self._without = {entity.id for entity in without}
        self._lost = Counter(order.group_of(entity.member) for entity in without)
        self._own = {
            model: {member.number for member in members if keyword and keyword.in_member(member)}
            for model, members in wanted.items()
        }
        groups: dict[Group, dict[ModelKey, list[Member]]] = {}
        for model, members in wanted.items():
            for member in members:
                pools = groups.setdefault(order.group_of(member), {})
                pools.setdefault(model, []).append(member)
        self.groups: dict[Group, dict[ModelKey, list[Member]]] = {
            group: {model: order.sorted_members(members) for model, members in pools.items()}
            for group, pools in groups.items()
        }

    def sizes(self, counts: DeviceCounts) -> Counter[Group]:
        """How many entities of devices match, by group."""
        return Counter(
            {
                group: sum(
                    self._weight(model, member, counts)
                    for model, members in pools.items()
                    for member in members
                )
                - self._lost[group]
                for group, pools in self.groups.items()
            }
        )

    def _weight(self, model: ModelKey, member: Member, counts: DeviceCounts) -> int:
        """On how many devices of a model a member matches."""
        everyone, keyword = counts.all.get(model, 0), self._keyword
        if keyword is None:
            return everyone
        matching = everyone
        if member.number not in self._own[model]:
            matching = counts.matching.get(model, 0) + sum(
                found.get(model, 0) for tail, found in counts.ending if keyword.fits(member, tail)
            )
        return everyone - matching if self._negated else matching

    def own_models(self) -> set[ModelKey]:
        """The models that have members which the keyword matches by themselves."""
        return {model for model, own in self._own.items() if own}

    def tails(self) -> list[tuple[str, str]]:
        """Those ways to cut the keyword whose last part begins the path of any member."""
        if self._keyword is None:
            return []
        members = [
            member for pools in self.groups.values() for some in pools.values() for member in some
        ]
        return [
            (head, tail)
            for head, tail in self._keyword.splits
            if any(self._keyword.fits(member, tail) for member in members)
        ]

    def matches(self, group: Group, model: ModelKey, thing: EntityThing) -> list[Member]:
        """The members of a certain device that match, in order."""
        members = self.groups.get(group, {}).get(model, [])
        keyword = self._keyword
        if keyword is not None and members:
            own = self._own[model]
            whole = keyword.in_thing(thing)
            members = [
                one
                for one in members
                if (whole or one.number in own or keyword.across(thing, one)) != self._negated
            ]
        if not self._without:
            return members
        return [one for one in members if Entity(thing, one).id not in self._without]


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
