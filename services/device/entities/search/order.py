"""The order of a search: criteria of members and criteria of things.

Criteria of members that come first cut all entities into groups: all that are called
"Battery", then all that are called "Humidity". Inside a group it goes thing by thing, in the
order of the first criterion of things (the newest first, when there is none), and inside a
thing by what is left.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from libs.common.http.console import PageRequest
from services.device.members.entity import EntityThing
from services.device.members.members import Member

Group = tuple[str, ...]
"""What the members of a group have in common."""

_NAMES = {
    "id": "_id",
    "key": "key",
    "name": "name",
    "type": "type",
    "value_type": "value_type",
    "access_mod": "access_mod",
    "created_at": "created_at",
    "updated_at": "updated_at",
}
INTEGRATION_NAME = "integration_name"
COLUMNS = {
    **_NAMES,
    **{f"entity_{name}": column for name, column in _NAMES.items()},
    "device_name": "device_name",
    INTEGRATION_NAME: INTEGRATION_NAME,
}

_MEMBER: dict[str, Callable[[Member], str]] = {
    "name": lambda member: member.name,
    "type": lambda member: member.type,
    "value_type": lambda member: member.value_type,
    "access_mod": lambda member: member.access_mod or "",
}
_THING: dict[str, Callable[[EntityThing], tuple[Any, ...]]] = {
    "_id": lambda thing: (),
    "key": lambda thing: (thing.integration, not thing.device, thing.identifier),
    "created_at": lambda thing: (thing.created_at,),
    "updated_at": lambda thing: (thing.updated_at,),
    "device_name": lambda thing: (thing.name or "",),
    INTEGRATION_NAME: lambda thing: (thing.integration,),
}
_STORED = {
    "_id": (),
    "key": ("integration", "identifier"),
    "created_at": ("createdAt",),
    "updated_at": ("updatedAt",),
    "device_name": ("name",),
    INTEGRATION_NAME: (),
}
"""The fields of devices that have an order. Devices do not store the names of integrations, so
`page` reads the devices of one integration after the other."""


@dataclass(frozen=True, slots=True)
class Order:
    """Criteria with 1 or -1, of groups, of things, and inside a thing."""

    groups: list[tuple[str, int]]
    things: tuple[str, int]
    members: list[tuple[str, int]]
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of integrations by id."""

    @classmethod
    def of(cls, request: PageRequest, names: Mapping[str, str]) -> "Order":
        """Read the criteria of a request; raise `InvalidInput` that names a wrong one.

        `names` are those of integrations, by id.
        """
        criteria = request.order(COLUMNS)
        first = next(at for at, (name, _) in enumerate(criteria) if name in _THING)
        rest = [one for one in criteria[first:] if one[0] in _MEMBER or one[0] in ("_id", "key")]
        return cls(criteria[:first], criteria[first], rest, names)

    @property
    def by_integration(self) -> bool:
        """Whether things are in the order of the names of their integrations."""
        return self.things[0] == INTEGRATION_NAME

    def sorted_integrations(self, integrations: Iterable[str]) -> list[str]:
        """Return ids of integrations in the order of their names."""
        return sorted(integrations, key=self._place_of, reverse=self.falling)

    def _place_of(self, integration: str) -> tuple[str, str]:
        return self.names.get(integration, ""), integration

    @property
    def falling(self) -> bool:
        """Whether things come from the greatest place down."""
        return self.things[1] < 0

    def group_of(self, member: Member) -> Group:
        """The group that a member is in."""
        return tuple(_MEMBER[name](member) for name, _ in self.groups)

    def sorted_groups(self, groups: Iterable[Group]) -> list[Group]:
        """Groups in order."""
        found = list(groups)
        for at in range(len(self.groups) - 1, -1, -1):
            found.sort(key=itemgetter(at), reverse=self.groups[at][1] < 0)
        return found

    def sorted_members(self, members: Iterable[Member]) -> list[Member]:
        """The members of one thing, of one group, in order."""
        found = sorted(members, key=lambda one: one.number, reverse=self.falling)
        for name, direction in reversed(self.members):
            if name == "_id":
                found.sort(key=lambda one: one.number, reverse=direction < 0)
            elif name == "key":
                found.sort(key=lambda one: one.path, reverse=direction < 0)
            else:
                found.sort(key=_MEMBER[name], reverse=direction < 0)
        return found

    def place(self, thing: EntityThing) -> tuple[Any, ...]:
        """Where a thing stands among others, to be compared in the direction of `things`."""
        if self.by_integration:
            return (*self._place_of(thing.integration), thing.id)
        return (*_THING[self.things[0]](thing), thing.id)

    def stored(self) -> list[tuple[str, int]]:
        """The order of things, as MongoDB sorts devices by."""
        name, direction = self.things
        return [(column, direction) for column in (*_STORED[name], "_id")]
