"""How many entities of devices match, and which of a device do: no device is looked at."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.device.entities.search.matching import KeyTest
from services.device.entities.search.order import Group, Order
from services.device.members.entity import Entity, EntityThing
from services.device.members.members import Member
from services.device.things.model import ModelKey

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
