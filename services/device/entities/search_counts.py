"""Counts of entities in a search, and entities that are listed one by one.

Entities of devices are counted by member set. A search lists entities of integrations, custom
entities, entities with their own grants, and entities of requested ids one by one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import Grants
from libs.common.things import SYSTEM_INTEGRATION, get_entity_thing_id
from services.device.entities.advanced_search import EntityOrder, GroupKey
from services.device.entities.search_filters import Keyword, matches_entity
from services.device.members.directory import EntityDirectory
from services.device.members.entity import Entity, EntityThing
from services.device.members.members import Member, MemberSet
from services.device.things.model import MemberSetKey
from services.device.things.visibility import Condition

DeviceCountByMemberSet = Mapping[MemberSetKey, int]
"""Number of devices by member set."""


@dataclass(frozen=True)
class DeviceCountsByMatch:
    """Numbers of visible devices by member set."""

    all: DeviceCountByMemberSet
    """All visible devices."""
    matching: DeviceCountByMemberSet = field(default_factory=dict)
    """Devices all of whose entities the keyword matches."""
    counts_by_tail: Sequence[tuple[str, DeviceCountByMemberSet]] = ()
    """Pairs `(tail, counts)` for splits of the keyword into head and tail: other devices whose keys
    end with the head."""


class SelectedMembers:
    """The members that a search selects of each member set, in groups and in order.

    With `negated`, members that the keyword does not match are selected. The entities `excluded` do
    not match.
    """

    def __init__(
        self,
        selected: Mapping[MemberSetKey, Sequence[Member]],
        order: EntityOrder,
        keyword: Keyword | None,
        *,
        negated: bool = False,
        excluded: Sequence[Entity] = (),
    ) -> None:
        self._keyword = keyword
        self._negated = negated
        self._excluded_ids = {entity.id for entity in excluded}
        self._excluded_counts = Counter(order.group_key(entity.member) for entity in excluded)
        self._matching_numbers = {
            key: {member.number for member in members if keyword and keyword.matches_member(member)}
            for key, members in selected.items()
        }
        groups: dict[GroupKey, dict[MemberSetKey, list[Member]]] = {}
        for key, members in selected.items():
            for member in members:
                members_by_set = groups.setdefault(order.group_key(member), {})
                members_by_set.setdefault(key, []).append(member)
        self.groups: dict[GroupKey, dict[MemberSetKey, list[Member]]] = {
            group: {key: order.sorted_members(members) for key, members in members_by_set.items()}
            for group, members_by_set in groups.items()
        }

    def count_by_group(self, counts: DeviceCountsByMatch) -> Counter[GroupKey]:
        """Return how many entities of devices match, by group."""
        return Counter(
            {
                group: sum(
                    self._count_devices(key, member, counts)
                    for key, members in members_by_set.items()
                    for member in members
                )
                - self._excluded_counts[group]
                for group, members_by_set in self.groups.items()
            }
        )

    def _count_devices(self, key: MemberSetKey, member: Member, counts: DeviceCountsByMatch) -> int:
        """Return the number of devices of a member set on which a member matches."""
        device_count, keyword = counts.all.get(key, 0), self._keyword
        if keyword is None:
            return device_count
        matching = device_count
        if member.number not in self._matching_numbers[key]:
            matching = counts.matching.get(key, 0) + sum(
                tail_counts.get(key, 0)
                for tail, tail_counts in counts.counts_by_tail
                if keyword.matches_tail(member, tail)
            )
        return device_count - matching if self._negated else matching

    def find_matching_member_sets(self) -> set[MemberSetKey]:
        """Return the member sets with members that match on every device."""
        return {key for key, numbers in self._matching_numbers.items() if numbers}

    def find_matching_keyword_splits(self) -> list[tuple[str, str]]:
        """Return the splits `(head, tail)` whose tail starts the path of any member."""
        if self._keyword is None:
            return []
        members = [
            member
            for members_by_set in self.groups.values()
            for members in members_by_set.values()
            for member in members
        ]
        return [
            (head, tail)
            for head, tail in self._keyword.splits
            if any(self._keyword.matches_tail(member, tail) for member in members)
        ]

    def matching_members(
        self, group: GroupKey, key: MemberSetKey, thing: EntityThing
    ) -> list[Member]:
        """Return the matching members of a device within a group, in the order of the search."""
        members = self.groups.get(group, {}).get(key, [])
        keyword = self._keyword
        if keyword is not None and members:
            numbers = self._matching_numbers[key]
            thing_matches = keyword.matches_thing(thing)
            members = [
                member
                for member in members
                if (
                    thing_matches
                    or member.number in numbers
                    or keyword.matches_across(thing, member)
                )
                != self._negated
            ]
        if not self._excluded_ids:
            return members
        return [member for member in members if Entity(thing, member).id not in self._excluded_ids]


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """One search; an absent field filters nothing."""

    principal: Principal
    grants: Grants
    order: EntityOrder
    select_members: Callable[[MemberSet], list[Member]]
    """Selects members of a member set."""
    keyword: Keyword | None = None
    negated: bool = False
    """Whether the entities that the keyword does not match are selected."""
    conditions: Sequence[Condition] = ()
    """MongoDB conditions on devices; `accepts` is the same filter for a loaded thing."""
    accepts: Callable[[EntityThing], bool] = lambda _: True
    ids: Sequence[int] | None = None
    """If present, only these entities match."""
    excluded_ids: frozenset[int] = frozenset()
    """Entities that are excluded."""
    customized: bool | None = None
    """True for custom entities only, false for all others."""

    @property
    def tenant(self) -> str:
        """Return the tenant whose entities are searched."""
        return self.principal.tenant


class EntityLister:
    """Lists visible entities of a search one by one."""

    def __init__(self, directory: EntityDirectory, request: SearchRequest) -> None:
        self._directory = directory
        self._request = request
        self._grants = request.grants
        self._customized = request.customized
        self._lists_custom_entities = request.principal.may(Function.ENTITY_CUSTOM_VIEW)

    async def list_entities(self) -> list[Entity]:
        """Return matching entities: those of the requested ids, or all that are not counted."""
        ids = self._request.ids
        entities = await (self._find_uncounted_entities() if ids is None else self.find_by_ids(ids))
        return [entity for entity in entities if entity.id not in self._request.excluded_ids]

    async def list_counted_excluded(self) -> list[Entity]:
        """Return excluded entities that the counts of devices include."""
        entities = await self.find_by_ids(sorted(self._request.excluded_ids))
        return [
            entity
            for entity in entities
            if entity.thing.device and entity.thing.is_visible_to(self._grants)
        ]

    async def find_by_ids(self, ids: Sequence[int]) -> list[Entity]:
        """Return the visible entities among `ids` that match the search."""
        entities = await self._directory.find_by_ids(self._request.tenant, ids)
        rows = [
            entity for entity in entities.values() if self._customized in (None, entity.is_custom)
        ]
        things = {entity.thing.id: entity.thing for entity in rows}
        wanted_ids = set(entities)
        return [
            entity for entity in self._matching_entities(things.values()) if entity.id in wanted_ids
        ]

    async def _find_uncounted_entities(self) -> list[Entity]:
        """Return visible entities of integrations, custom ones, and separately granted ones."""
        condition = self._things_condition()
        tenant, things = self._request.tenant, list[EntityThing]()
        if condition:
            things += await self._directory.find_non_device_things(tenant, condition)
        if not self._customized and not self._grants.everything:
            single = {
                get_entity_thing_id(entity_id) for entity_id in self._grants.resources.entities
            }
            known = await self._directory.find_things(tenant, single) if single else {}
            things += [
                thing
                for thing in known.values()
                if thing.device and not thing.is_visible_to(self._grants)
            ]
        return self._matching_entities(things)

    def _things_condition(self) -> dict[str, Any] | None:
        """Return the condition of things to list; None if nothing is to be listed."""
        grants = self._grants.resources
        custom = {"integration": SYSTEM_INTEGRATION}
        visible_conditions: list[dict[str, Any]] = []
        if self._customized is not False and self._lists_custom_entities:
            visible_conditions.append(custom)
        if not self._customized and self._grants.everything:
            visible_conditions.append({"integration": {"$ne": SYSTEM_INTEGRATION}})
        elif not self._customized and (grants.integrations or grants.entities):
            single = [get_entity_thing_id(entity_id) for entity_id in grants.entities]
            granted_conditions = [
                {"integration": {"$in": list(grants.integrations)}},
                {"_id": {"$in": single}},
            ]
            visible_conditions.append(
                {"integration": {"$ne": SYSTEM_INTEGRATION}, "$or": granted_conditions}
            )
        return {"$or": visible_conditions} if visible_conditions else None

    def _matching_entities(self, things: Iterable[EntityThing]) -> list[Entity]:
        request = self._request
        return [
            Entity(thing, member)
            for thing in things
            if request.accepts(thing)
            for member in request.select_members(thing.members)
            if request.keyword is None
            or matches_entity(request.keyword, thing, member) != request.negated
            if self._is_listed(Entity(thing, member))
        ]

    def _is_listed(self, entity: Entity) -> bool:
        """Return whether the search lists the entity.

        Every user may see custom entities, but only a user with the function `entity_custom.view`
        finds them in searches.
        """
        return (
            self._lists_custom_entities if entity.is_custom else entity.is_visible_to(self._grants)
        )
