"""The advanced search for entities: conditions and orders.

The order of a search: criteria of members and criteria of things.

Criteria of members that come first cut all entities into groups: all that are called
"Battery", then all that are called "Humidity". Inside a group it goes thing by thing, in the
order of the first criterion of things (the newest first, when there is none), and inside a
thing by what is left.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, get_args

from libs.common.errors import InvalidInput
from libs.common.http.console import PageRequest
from libs.common.http.ids import parse_id
from libs.common.integrations.client import ShownIntegration
from libs.common.things import EntityType, ValueType
from services.device.entities.schemas import AdvancedSearch, ColumnFilter
from services.device.entities.search_filters import (
    FIELD,
    NEGATED,
    KeyBegins,
    KeyEnds,
    KeyTest,
    Keyword,
    TextFilter,
    integrations_named,
    text_condition,
    text_fits,
)
from services.device.entities.tags import EntityTags
from services.device.members.entity import EntityThing
from services.device.members.members import Member, MemberSet
from services.device.things.groups import GroupStore

_TEXT = ("CONTAINS", "NOT_CONTAINS", "EQ", "NE", "START_WITH", "END_WITH")
_EMPTY = ("IS_EMPTY", "IS_NOT_EMPTY")
_ANY = ("ANY_EQUALS",)
OPERATORS: Mapping[str, Sequence[str]] = {
    "ENTITY_KEY": _TEXT,
    "ENTITY_NAME": _TEXT,
    "ENTITY_PARENT_NAME": (*_TEXT, *_EMPTY),
    "DEVICE_NAME": _TEXT,
    "INTEGRATION_NAME": _TEXT,
    "ENTITY_TYPE": _ANY,
    "ENTITY_VALUE_TYPE": _ANY,
    "DEVICE_GROUP": _ANY,
    "ENTITY_TAGS": ("ANY_EQUALS", "CONTAINS", "NOT_CONTAINS", "EQ", *_EMPTY),
    "DEVICE_ID": ("EQ",),
}
"""What a column can be asked."""
_KNOWN = {"ENTITY_TYPE": get_args(EntityType), "ENTITY_VALUE_TYPE": get_args(ValueType)}
MemberTest = Callable[[Member, MemberSet], bool]


@dataclass(frozen=True)
class Names:
    """What names in a filter stand for."""

    tenant: str
    integrations: Mapping[str, ShownIntegration]
    groups: GroupStore
    tags: EntityTags


@dataclass
class AdvancedFilter:
    """A filter that has been read."""

    members: list[MemberTest] = field(default_factory=list)
    things: TextFilter = field(default_factory=TextFilter)
    key_test: KeyTest | None = None
    negated: bool = False
    keys: list[str] | None = None
    """The only key that is wanted, in a list."""
    key_but: str | None = None
    """A key that is not wanted."""
    ids: list[int] | None = None
    """The only entities that are wanted."""
    without: frozenset[int] = frozenset()
    """Entities that are not wanted."""

    @classmethod
    async def from_columns(
        cls, columns: Mapping[str, ColumnFilter], names: Names
    ) -> "AdvancedFilter":
        """Read a filter; raise `InvalidInput` that names the column at fault."""
        found = cls()
        for column, wanted in columns.items():
            _check(column, wanted)
            text = wanted.values[0] if wanted.values else ""
            match column:
                case "ENTITY_KEY":
                    found._add_key(wanted.operator, text)
                case "ENTITY_TYPE" | "ENTITY_VALUE_TYPE" | "ENTITY_NAME" | "ENTITY_PARENT_NAME":
                    found.members.append(_member_test(column, wanted, text))
                case "DEVICE_NAME":
                    found._add_device_name(wanted.operator, text)
                case "INTEGRATION_NAME":
                    found._add_integration_name(wanted.operator, text, names)
                case "DEVICE_GROUP":
                    await found._add_groups(wanted.values, names)
                case "ENTITY_TAGS":
                    await found._add_tags(wanted, names)
                case "DEVICE_ID":
                    found._add_device(text)
        return found

    def wants(self, members: MemberSet) -> list[Member]:
        """The members of a model that pass; hidden ones do not."""
        return [
            member
            for member in members.members
            if member.visible and all(test(member, members) for test in self.members)
        ]

    @property
    def conditions(self) -> list[dict[str, object]]:
        """On devices."""
        return self.things.conditions

    @property
    def fits(self) -> Callable[..., bool]:
        """The same of a thing."""
        return self.things.fits

    def _add_key(self, operator: str, text: str) -> None:
        match operator:
            case "EQ":
                self.keys = [text]
            case "NE":
                self.key_but = text
            case "START_WITH":
                self.key_test = KeyBegins(text)
            case "END_WITH":
                self.key_test = KeyEnds(text)
            case _:
                self.key_test = Keyword(text, {}, names=False)
                self.negated = operator in NEGATED

    def _add_device_name(self, operator: str, text: str) -> None:
        self.things.conditions.append(text_condition("name", operator, text))
        self.things.tests.append(lambda thing: text_fits(operator, text, thing.name))

    def _add_integration_name(self, operator: str, text: str, names: Names) -> None:
        negated = operator in NEGATED
        named = integrations_named(NEGATED.get(operator, operator), text, names.integrations)
        self.things.conditions.append({"integration": {"$nin" if negated else "$in": named}})
        self.things.tests.append(lambda thing: (thing.integration in named) != negated)

    async def _add_groups(self, values: Sequence[str], names: Names) -> None:
        groups = await names.groups.with_names(names.tenant, values)
        self.things.conditions.append({"group": {"$in": groups}})
        self.things.tests.append(lambda thing: thing.group in groups)

    async def _add_tags(self, wanted: ColumnFilter, names: Names) -> None:
        positive = {"NOT_CONTAINS": "ANY_EQUALS", "IS_EMPTY": "IS_NOT_EMPTY"}
        operator = positive.get(wanted.operator, wanted.operator)
        tagged = await names.tags.tagged(names.tenant, operator, wanted.values)
        if operator == wanted.operator:
            self.ids = tagged
        else:
            self.without = frozenset(tagged)

    def _add_device(self, text: str) -> None:
        device_id = parse_id(text, f"{FIELD}.DEVICE_ID.values")
        self.things.conditions.append({"_id": device_id})
        self.things.tests.append(lambda thing: thing.device and thing.id == device_id)


def device_of(body: AdvancedSearch) -> int | None:
    """The device whose properties, and perhaps more, are listed without any other filter."""
    columns = dict(body.entity_filter or {})
    device, types = columns.pop("DEVICE_ID", None), columns.pop("ENTITY_TYPE", None)
    if device is None or columns or (types is not None and "PROPERTY" not in types.values):
        return None
    return parse_id(device.values[0], f"{FIELD}.DEVICE_ID.values")


def _check(column: str, wanted: ColumnFilter) -> None:
    operators = OPERATORS.get(column)
    if operators is None:
        raise InvalidInput(f"must be one of {', '.join(OPERATORS)}", field=f"{FIELD}.{column:.64}")
    place = f"{FIELD}.{column}"
    if wanted.operator not in operators:
        raise InvalidInput(f"must be one of {', '.join(operators)}", field=f"{place}.operator")
    if wanted.operator not in _EMPTY and not wanted.values:
        raise InvalidInput("must have a value", field=f"{place}.values")
    known = _KNOWN.get(column)
    if known is not None and not set(wanted.values) <= set(known):
        raise InvalidInput(f"must be of {', '.join(known)}", field=f"{place}.values")


def _member_test(column: str, wanted: ColumnFilter, text: str) -> MemberTest:
    operator, values = wanted.operator, frozenset(wanted.values)
    match column:
        case "ENTITY_TYPE":
            return lambda member, _: member.type in values
        case "ENTITY_VALUE_TYPE":
            return lambda member, _: member.value_type in values
        case "ENTITY_NAME":
            return lambda member, _: text_fits(operator, text, member.name)
    return lambda member, members: text_fits(operator, text, _parent_name(member, members))


def _parent_name(member: Member, members: MemberSet) -> str | None:
    above = None if member.parent is None else members.by_path.get(member.parent)
    return above.name if above else None


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
    def from_request(cls, request: PageRequest, names: Mapping[str, str]) -> "Order":
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
