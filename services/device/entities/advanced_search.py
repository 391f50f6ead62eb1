"""Advanced search of entities: column filters and sort orders.

An order has criteria of members and of things. Leading criteria of members divide all entities into
groups: first all that are named "Battery", then all that are named "Humidity". A group is sorted by
thing, by the first criterion of things (newest first by default), and within a thing by the
remaining criteria.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, get_args

from libs.common.errors import InvalidInput
from libs.common.http.console import PageRequest
from libs.common.http.ids import parse_id
from libs.common.integrations.client import IntegrationSummary
from libs.common.things import EntityType, ValueType
from services.device.entities.schemas import AdvancedSearch, ColumnFilter
from services.device.entities.search_filters import (
    FILTER_FIELD,
    POSITIVE_BY_NEGATED_OPERATOR,
    KeyPrefix,
    KeySuffix,
    Keyword,
    ThingFilter,
    find_integrations,
    text_condition,
    text_matches,
)
from services.device.entities.tags import EntityTags
from services.device.members.entity import EntityThing
from services.device.members.members import Member, MemberSet
from services.device.things.groups import GroupStore

_TEXT_OPERATORS = ("CONTAINS", "NOT_CONTAINS", "EQ", "NE", "START_WITH", "END_WITH")
_EMPTY_OPERATORS = ("IS_EMPTY", "IS_NOT_EMPTY")
_ANY_OPERATORS = ("ANY_EQUALS",)
OPERATORS_BY_COLUMN: Mapping[str, Sequence[str]] = {
    "ENTITY_KEY": _TEXT_OPERATORS,
    "ENTITY_NAME": _TEXT_OPERATORS,
    "ENTITY_PARENT_NAME": (*_TEXT_OPERATORS, *_EMPTY_OPERATORS),
    "DEVICE_NAME": _TEXT_OPERATORS,
    "INTEGRATION_NAME": _TEXT_OPERATORS,
    "ENTITY_TYPE": _ANY_OPERATORS,
    "ENTITY_VALUE_TYPE": _ANY_OPERATORS,
    "DEVICE_GROUP": _ANY_OPERATORS,
    "ENTITY_TAGS": ("ANY_EQUALS", "CONTAINS", "NOT_CONTAINS", "EQ", *_EMPTY_OPERATORS),
    "DEVICE_ID": ("EQ",),
}
"""Operators that a filter of a column may have, by column."""
_CHOICES_BY_COLUMN = {"ENTITY_TYPE": get_args(EntityType), "ENTITY_VALUE_TYPE": get_args(ValueType)}
MemberTest = Callable[[Member, MemberSet], bool]


@dataclass(frozen=True)
class NameSources:
    """Integrations, groups and tags of a tenant, in which a filter looks up names."""

    tenant: str
    integrations: Mapping[str, IntegrationSummary]
    groups: GroupStore
    tags: EntityTags


@dataclass
class AdvancedFilter:
    """The parsed column filters of an advanced search."""

    member_tests: list[MemberTest] = field(default_factory=list)
    things: ThingFilter = field(default_factory=ThingFilter)
    key_test: Keyword | None = None
    negated: bool = False
    keys: list[str] | None = None
    """The only key that matches, in a list; None if any key may match."""
    excluded_key: str | None = None
    """The only entity key that does not match; None if no key is excluded."""
    ids: list[int] | None = None
    """If present, only these entities match."""
    excluded_ids: frozenset[int] = frozenset()
    """Entities that are excluded."""

    @classmethod
    async def from_columns(
        cls, columns: Mapping[str, ColumnFilter], names: NameSources
    ) -> "AdvancedFilter":
        """Parse column filters; raise `InvalidInput` for an invalid column or filter."""
        parsed = cls()
        for column, column_filter in columns.items():
            _check_filter(column, column_filter)
            text = column_filter.values[0] if column_filter.values else ""
            match column:
                case "ENTITY_KEY":
                    parsed._add_key(column_filter.operator, text)
                case "ENTITY_TYPE" | "ENTITY_VALUE_TYPE" | "ENTITY_NAME" | "ENTITY_PARENT_NAME":
                    parsed.member_tests.append(_build_member_test(column, column_filter, text))
                case "DEVICE_NAME":
                    parsed._add_device_name(column_filter.operator, text)
                case "INTEGRATION_NAME":
                    parsed._add_integration_name(column_filter.operator, text, names)
                case "DEVICE_GROUP":
                    await parsed._add_groups(column_filter.values, names)
                case "ENTITY_TAGS":
                    await parsed._add_tags(column_filter, names)
                case "DEVICE_ID":
                    parsed._add_device(text)
        return parsed

    def select_members(self, members: MemberSet) -> list[Member]:
        """Return the members of a model that pass the filter and are not hidden."""
        return [
            member
            for member in members.members
            if member.visible and all(test(member, members) for test in self.member_tests)
        ]

    @property
    def device_conditions(self) -> list[dict[str, object]]:
        """Return the MongoDB conditions that select devices."""
        return self.things.conditions

    @property
    def accepts_thing(self) -> Callable[..., bool]:
        """Return the function that tests whether a thing passes the filter."""
        return self.things.accepts

    def _add_key(self, operator: str, text: str) -> None:
        match operator:
            case "EQ":
                self.keys = [text]
            case "NE":
                self.excluded_key = text
            case "START_WITH":
                self.key_test = KeyPrefix(text)
            case "END_WITH":
                self.key_test = KeySuffix(text)
            case _:
                self.key_test = Keyword(text, {}, names=False)
                self.negated = operator in POSITIVE_BY_NEGATED_OPERATOR

    def _add_device_name(self, operator: str, text: str) -> None:
        self.things.conditions.append(text_condition("name", operator, text))
        self.things.tests.append(lambda thing: text_matches(operator, text, thing.name))

    def _add_integration_name(self, operator: str, text: str, names: NameSources) -> None:
        negated = operator in POSITIVE_BY_NEGATED_OPERATOR
        matching_integrations = find_integrations(
            POSITIVE_BY_NEGATED_OPERATOR.get(operator, operator), text, names.integrations
        )
        self.things.conditions.append(
            {"integration": {"$nin" if negated else "$in": matching_integrations}}
        )
        self.things.tests.append(
            lambda thing: (thing.integration in matching_integrations) != negated
        )

    async def _add_groups(self, values: Sequence[str], names: NameSources) -> None:
        groups = await names.groups.find_ids(names.tenant, values)
        self.things.conditions.append({"group": {"$in": groups}})
        self.things.tests.append(lambda thing: thing.group in groups)

    async def _add_tags(self, column_filter: ColumnFilter, names: NameSources) -> None:
        opposites = {"NOT_CONTAINS": "ANY_EQUALS", "IS_EMPTY": "IS_NOT_EMPTY"}
        operator = opposites.get(column_filter.operator, column_filter.operator)
        tagged = await names.tags.find_tagged_entities(names.tenant, operator, column_filter.values)
        if operator == column_filter.operator:
            self.ids = tagged
        else:
            self.excluded_ids = frozenset(tagged)

    def _add_device(self, text: str) -> None:
        device_id = parse_id(text, f"{FILTER_FIELD}.DEVICE_ID.values")
        self.things.conditions.append({"_id": device_id})
        self.things.tests.append(lambda thing: thing.device and thing.id == device_id)


def find_only_device(body: AdvancedSearch) -> int | None:
    """Return the id of the device if a search selects its properties without another filter.

    The search may also select other types of entities of the device. Returns None for any other
    search.
    """
    columns = dict(body.entity_filter or {})
    device, types = columns.pop("DEVICE_ID", None), columns.pop("ENTITY_TYPE", None)
    if device is None or columns or (types is not None and "PROPERTY" not in types.values):
        return None
    return parse_id(device.values[0], f"{FILTER_FIELD}.DEVICE_ID.values")


def _check_filter(column: str, column_filter: ColumnFilter) -> None:
    operators = OPERATORS_BY_COLUMN.get(column)
    if operators is None:
        raise InvalidInput(
            f"must be one of {', '.join(OPERATORS_BY_COLUMN)}", field=f"{FILTER_FIELD}.{column:.64}"
        )
    place = f"{FILTER_FIELD}.{column}"
    if column_filter.operator not in operators:
        raise InvalidInput(f"must be one of {', '.join(operators)}", field=f"{place}.operator")
    if column_filter.operator not in _EMPTY_OPERATORS and not column_filter.values:
        raise InvalidInput("must have a value", field=f"{place}.values")
    choices = _CHOICES_BY_COLUMN.get(column)
    if choices is not None and not set(column_filter.values) <= set(choices):
        raise InvalidInput(f"must be one of {', '.join(choices)}", field=f"{place}.values")


def _build_member_test(column: str, column_filter: ColumnFilter, text: str) -> MemberTest:
    operator, values = column_filter.operator, frozenset(column_filter.values)
    match column:
        case "ENTITY_TYPE":
            return lambda member, _: member.type in values
        case "ENTITY_VALUE_TYPE":
            return lambda member, _: member.value_type in values
        case "ENTITY_NAME":
            return lambda member, _: text_matches(operator, text, member.name)
    return lambda member, members: text_matches(operator, text, _parent_name(member, members))


def _parent_name(member: Member, members: MemberSet) -> str | None:
    above = None if member.parent is None else members.by_path.get(member.parent)
    return above.name if above else None


GroupKey = tuple[str, ...]
"""Values of the leading criteria, which all members of a group share."""

_ENTITY_SORT_CRITERION_BY_COLUMN = {
    "id": "_id",
    "key": "key",
    "name": "name",
    "type": "type",
    "value_type": "value_type",
    "access_mod": "access_mod",
    "created_at": "created_at",
    "updated_at": "updated_at",
}
INTEGRATION_NAME_CRITERION = "integration_name"
SORT_CRITERION_BY_COLUMN = {
    **_ENTITY_SORT_CRITERION_BY_COLUMN,
    **{f"entity_{name}": column for name, column in _ENTITY_SORT_CRITERION_BY_COLUMN.items()},
    "device_name": "device_name",
    INTEGRATION_NAME_CRITERION: INTEGRATION_NAME_CRITERION,
}

_MEMBER_SORT_KEY_BY_CRITERION: dict[str, Callable[[Member], str]] = {
    "name": lambda member: member.name,
    "type": lambda member: member.type,
    "value_type": lambda member: member.value_type,
    "access_mod": lambda member: member.access_mod or "",
}
_THING_SORT_KEY_BY_CRITERION: dict[str, Callable[[EntityThing], tuple[Any, ...]]] = {
    "_id": lambda thing: (),
    "key": lambda thing: (thing.integration, not thing.device, thing.identifier),
    "created_at": lambda thing: (thing.created_at,),
    "updated_at": lambda thing: (thing.updated_at,),
    "device_name": lambda thing: (thing.name or "",),
    INTEGRATION_NAME_CRITERION: lambda thing: (thing.integration,),
}
_STORED_FIELDS_BY_CRITERION = {
    "_id": (),
    "key": ("integration", "identifier"),
    "created_at": ("createdAt",),
    "updated_at": ("updatedAt",),
    "device_name": ("name",),
    INTEGRATION_NAME_CRITERION: (),
}
"""Stored fields of devices by criterion.

Devices do not store names of integrations, so a page reads the devices of one integration after the
other.
"""


@dataclass(frozen=True, slots=True)
class EntityOrder:
    """A sort order: criteria of groups, of things, and within a thing, each with 1 or -1."""

    groups: list[tuple[str, int]]
    things: tuple[str, int]
    members: list[tuple[str, int]]
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of integrations by id."""

    @classmethod
    def from_request(cls, request: PageRequest, names: Mapping[str, str]) -> "EntityOrder":
        """Parse the criteria of a request; raise `InvalidInput` for an invalid criterion.

        `names` has the names of integrations by id.
        """
        criteria = request.order(SORT_CRITERION_BY_COLUMN)
        first = next(
            at for at, (name, _) in enumerate(criteria) if name in _THING_SORT_KEY_BY_CRITERION
        )
        rest = [
            criterion
            for criterion in criteria[first:]
            if criterion[0] in _MEMBER_SORT_KEY_BY_CRITERION or criterion[0] in ("_id", "key")
        ]
        return cls(criteria[:first], criteria[first], rest, names)

    @property
    def is_by_integration(self) -> bool:
        """Return whether things are sorted by the names of their integrations."""
        return self.things[0] == INTEGRATION_NAME_CRITERION

    def sorted_integrations(self, integrations: Iterable[str]) -> list[str]:
        """Return ids of integrations in the order of their names."""
        return sorted(integrations, key=self._integration_sort_key, reverse=self.is_descending)

    def _integration_sort_key(self, integration: str) -> tuple[str, str]:
        return self.names.get(integration, ""), integration

    @property
    def is_descending(self) -> bool:
        """Return whether things are sorted in descending order."""
        return self.things[1] < 0

    def group_key(self, member: Member) -> GroupKey:
        """Return the values that identify the group of a member."""
        return tuple(_MEMBER_SORT_KEY_BY_CRITERION[name](member) for name, _ in self.groups)

    def sorted_groups(self, groups: Iterable[GroupKey]) -> list[GroupKey]:
        """Return groups sorted by their criteria."""
        ordered_groups = list(groups)
        for at in range(len(self.groups) - 1, -1, -1):
            ordered_groups.sort(key=itemgetter(at), reverse=self.groups[at][1] < 0)
        return ordered_groups

    def sorted_members(self, members: Iterable[Member]) -> list[Member]:
        """Return members of one thing and group, in order."""
        ordered_members = sorted(
            members, key=lambda member: member.number, reverse=self.is_descending
        )
        for name, direction in reversed(self.members):
            if name == "_id":
                ordered_members.sort(key=lambda member: member.number, reverse=direction < 0)
            elif name == "key":
                ordered_members.sort(key=lambda member: member.path, reverse=direction < 0)
            else:
                ordered_members.sort(key=_MEMBER_SORT_KEY_BY_CRITERION[name], reverse=direction < 0)
        return ordered_members

    def sort_key(self, thing: EntityThing) -> tuple[Any, ...]:
        """Return the key by which things are sorted, regardless of the direction."""
        if self.is_by_integration:
            return (*self._integration_sort_key(thing.integration), thing.id)
        return (*_THING_SORT_KEY_BY_CRITERION[self.things[0]](thing), thing.id)

    def stored_order(self) -> list[tuple[str, int]]:
        """Return the fields and directions by which MongoDB sorts devices in this order."""
        name, direction = self.things
        return [(column, direction) for column in (*_STORED_FIELDS_BY_CRITERION[name], "_id")]
