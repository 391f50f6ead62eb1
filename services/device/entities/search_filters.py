"""Filters of the search for entities.

A keyword matches the name or key of an entity, or the name of its device or integration. A key is
the key of the thing, a dot, and the path of the member. A keyword may be part of either, or extend
across the dot.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.common.integrations.client import IntegrationSummary
from libs.common.store.mongo import build_text_condition, literal_pattern
from libs.common.things import device_key, member_key
from services.device.entities.schemas import SearchEntities
from services.device.members.entity import EntityThing
from services.device.members.members import Member, MemberSet
from services.device.things.visibility import MATCHES_NOTHING, Condition

_DEVICE_KEY_PARTS = 3
"""Number of parts, separated by dots, in the key of a device."""


class MemberFilter:
    """Filters of a search that depend on members only, not on their things."""

    def __init__(self, search: SearchEntities) -> None:
        self._types = frozenset(search.entity_type or ())
        self._value_types = frozenset(search.entity_value_type or ())
        self._access_mods = frozenset(search.entity_access_mod or ())
        self._names = frozenset(search.entity_names or ())
        self._parents_only = bool(search.exclude_children)
        self._hidden = bool(search.show_hidden)

    def __call__(self, members: MemberSet) -> list[Member]:
        """Return the members that pass the filter."""
        return [member for member in members.members if self._passes(member)]

    def _passes(self, member: Member) -> bool:
        return (
            (not self._types or member.type in self._types)
            and (not self._value_types or member.value_type in self._value_types)
            and (not self._access_mods or member.access_mod in self._access_mods)
            and (not self._names or member.name in self._names)
            and (not self._parents_only or member.parent is None)
            and (self._hidden or member.visible)
        )


class Keyword:
    """A search text that matches entities by part of their keys or names.

    The key of an entity is the key of its thing, a dot, and the path of its member. The text may
    occur in the first part (`matches_thing`), in the second (`matches_member`), or extend across
    the dot (`matches_across`). `splits` has a pair of texts, before and after, for each such dot.
    """

    def __init__(
        self,
        text: str,
        integrations: Mapping[str, IntegrationSummary],
        *,
        names: bool = True,
        keys: bool = True,
    ) -> None:
        """Compare the text with names if `names`, and with keys if `keys` is true."""
        self._text = text
        self._lower = text.lower()
        self._names, self._keys = names, keys
        self._find = re.compile(literal_pattern(text), re.IGNORECASE).search
        self._named = {
            integration
            for integration, summary in integrations.items()
            if names and summary.name and self._find(summary.name)
        }
        parts = self._lower.split(".")
        self.splits: Sequence[tuple[str, str]] = [
            (".".join(parts[:at]), ".".join(parts[at:]))
            for at in range(1, len(parts))
            if keys and parts[at - 1] and parts[at]
        ]

    def matches_thing(self, thing: EntityThing) -> bool:
        """Return whether all entities of a thing match."""
        return (
            thing.integration in self._named
            or bool(self._names and thing.name and self._find(thing.name))
            or (self._keys and self._lower in f"{thing.key}.".lower())
        )

    def matches_member(self, member: Member) -> bool:
        """Return whether a member matches in any thing."""
        matches_name = self._names and bool(self._find(member.name))
        return matches_name or (self._keys and self._lower in f".{member.path}".lower())

    def matches_tail(self, member: Member, tail: str) -> bool:
        """Return whether the path of a member starts with `tail`."""
        return member.path.lower().startswith(tail)

    def matches_across(self, thing: EntityThing, member: Member) -> bool:
        """Return whether the text extends across the dot between key and path."""
        return any(
            self.matches_tail(member, tail) and thing.key.lower().endswith(head)
            for head, tail in self.splits
        )

    def whole_device_conditions(self, integrations: Iterable[str]) -> list[dict[str, Any]]:
        """Return conditions; a device that meets one has only matching entities."""
        conditions: list[dict[str, Any]] = (
            [{"name": build_text_condition(self._text)}] if self._names else []
        )
        whole: set[str] = set(self._named)
        if self._keys:
            conditions += self._key_conditions(integrations, whole)
        if whole:
            conditions.append({"integration": {"$in": sorted(whole)}})
        return conditions

    def _key_conditions(
        self, integrations: Iterable[str], whole: set[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield conditions on keys; fully matching integrations are added to `whole`."""
        body = self._lower.removesuffix(".")
        end = "$" if body != self._lower else ""
        if "." not in body:
            yield {"snKey": {"$regex": literal_pattern(body.upper()) + end}}
        for integration in integrations:
            before = device_key(integration, "").lower()
            if self._lower in before:
                whole.add(integration)
                continue
            for serial in _serial_prefixes(body, before):
                begins = {"$regex": f"^{literal_pattern(serial.upper())}{end}"}
                yield {"integration": integration, "snKey": begins}

    def head_condition(self, head: str, integrations: Iterable[str]) -> dict[str, Any]:
        """Return the condition on devices whose keys end with `head`."""
        conditions: list[dict[str, Any]] = []
        if "." not in head:
            conditions.append({"snKey": {"$regex": f"{literal_pattern(head.upper())}$"}})
        conditions.extend(
            {"integration": integration, "snKey": serial.upper()}
            for integration in integrations
            for serial in _serial_prefixes(head, device_key(integration, "").lower())
        )
        return _any_condition(conditions)


class KeyPrefix(Keyword):
    """A search text that matches the start of entity keys."""

    def __init__(self, text: str) -> None:
        super().__init__(text, {}, names=False)
        parts = self._lower.split(".", _DEVICE_KEY_PARTS)
        whole = len(parts) > _DEVICE_KEY_PARTS
        self.splits = [(".".join(parts[:-1]), parts[-1])] if whole else []

    def matches_thing(self, thing: EntityThing) -> bool:
        """Return whether all keys of a thing start with the text."""
        return thing.key.lower().startswith(self._lower)

    def matches_member(self, member: Member) -> bool:
        """Return False: the key of a member starts with the key of its thing, not with the path."""
        return False

    def matches_across(self, thing: EntityThing, member: Member) -> bool:
        """Return whether the key of a member starts with the text."""
        return member_key(thing.key, member.path).lower().startswith(self._lower)

    def whole_device_conditions(self, integrations: Iterable[str]) -> list[dict[str, Any]]:
        """Return conditions on devices whose keys start with the text."""
        conditions: list[dict[str, Any]] = []
        for integration in integrations:
            before = device_key(integration, "").lower()
            rest = self._lower.removeprefix(before)
            if before.startswith(self._lower):
                conditions.append({"integration": integration})
            elif rest != self._lower and "." not in rest:
                serial = {"$regex": f"^{literal_pattern(rest.upper())}"}
                conditions.append({"integration": integration, "snKey": serial})
        return conditions

    def head_condition(self, head: str, integrations: Iterable[str]) -> dict[str, Any]:
        """Return the condition on the device whose key is `head`."""
        return _any_condition(
            {"integration": integration, "snKey": head.removeprefix(before).upper()}
            for integration in integrations
            if head.startswith(before := device_key(integration, "").lower())
        )


class KeySuffix(Keyword):
    """A search text that matches the end of entity keys."""

    def __init__(self, text: str) -> None:
        super().__init__(text, {}, names=False)

    def matches_thing(self, thing: EntityThing) -> bool:
        """Return False: the key of a member ends with its path, not with the key of its thing."""
        return False

    def matches_member(self, member: Member) -> bool:
        """Return whether the path of a member ends with the text."""
        return bool(member.path) and f".{member.path}".lower().endswith(self._lower)

    def matches_tail(self, member: Member, tail: str) -> bool:
        """Return whether `tail` is the path of a member."""
        return member.path.lower() == tail

    def matches_across(self, thing: EntityThing, member: Member) -> bool:
        """Return whether the key of a member ends with the text."""
        return member_key(thing.key, member.path).lower().endswith(self._lower)

    def whole_device_conditions(self, integrations: Iterable[str]) -> list[dict[str, Any]]:
        """Return no condition: no device matches with all its entities."""
        return []


def matches_entity(test: Keyword, thing: EntityThing, member: Member) -> bool:
    """Return whether a test matches a member of a thing."""
    return (
        test.matches_member(member)
        or test.matches_thing(thing)
        or test.matches_across(thing, member)
    )


def _any_condition(conditions: Iterable[dict[str, Any]]) -> dict[str, Any]:
    condition_list = list(conditions)
    return {"$or": condition_list} if condition_list else MATCHES_NOTHING


def _serial_prefixes(text: str, before: str) -> Iterator[str]:
    """Yield the possible starts of an SN if `text` begins in `before`, the key up to the SN."""
    for length in range(1, len(text)):
        rest = text[length:]
        if before.endswith(text[:length]) and "." not in rest:
            yield rest


FILTER_FIELD = "entity_filter"
"""Field of the filters in an advanced search."""
POSITIVE_BY_NEGATED_OPERATOR = {"NE": "EQ", "NOT_CONTAINS": "CONTAINS", "IS_NOT_EMPTY": "IS_EMPTY"}
"""Each negated operator and the operator that it negates."""
_TEST_BY_OPERATOR: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda name, text: text.lower() in name.lower(),
    "EQ": lambda name, text: name == text,
    "START_WITH": lambda name, text: name.lower().startswith(text.lower()),
    "END_WITH": lambda name, text: name.lower().endswith(text.lower()),
    "IS_EMPTY": lambda name, _: not name,
}


def text_matches(operator: str, text: str, name: str | None) -> bool:
    """Return whether a name matches an operator; a missing name is an empty one."""
    negated = operator in POSITIVE_BY_NEGATED_OPERATOR
    return (
        _TEST_BY_OPERATOR[POSITIVE_BY_NEGATED_OPERATOR.get(operator, operator)](name or "", text)
        != negated
    )


def text_condition(field_name: str, operator: str, text: str) -> Condition:
    """Return the condition that a stored field matches an operator."""
    conditions: dict[str, Any] = {
        "CONTAINS": build_text_condition(text, FILTER_FIELD),
        "EQ": {"$eq": text},
        "START_WITH": {"$regex": f"^{literal_pattern(text, FILTER_FIELD)}", "$options": "i"},
        "END_WITH": {"$regex": f"{literal_pattern(text, FILTER_FIELD)}$", "$options": "i"},
    }
    positive = conditions[POSITIVE_BY_NEGATED_OPERATOR.get(operator, operator)]
    return {
        field_name: {"$not": positive} if operator in POSITIVE_BY_NEGATED_OPERATOR else positive
    }


@dataclass
class ThingFilter:
    """Filters of things: conditions on devices, and tests of any thing."""

    conditions: list[Condition] = field(default_factory=list)
    tests: list[Callable[[EntityThing], bool]] = field(default_factory=list)

    @classmethod
    def from_source_name(
        cls, name: str | None, integrations: Mapping[str, IntegrationSummary]
    ) -> "ThingFilter":
        """Return a filter by part of a device or integration name; None matches all."""
        text_filter = cls()
        if name:
            matching_integrations = find_integrations("CONTAINS", name, integrations)
            text_filter.conditions.append(
                {
                    "$or": [
                        {"name": build_text_condition(name, "entity_source_name")},
                        {"integration": {"$in": matching_integrations}},
                    ]
                }
            )
            text_filter.tests.append(
                lambda thing: (
                    thing.integration in matching_integrations
                    or text_matches("CONTAINS", name, thing.name)
                )
            )
        return text_filter

    def accepts(self, thing: EntityThing) -> bool:
        """Return whether a thing passes all tests."""
        return all(test(thing) for test in self.tests)


def find_integrations(
    operator: str, text: str, integrations: Mapping[str, IntegrationSummary]
) -> Sequence[str]:
    """Return the ids of integrations whose names match an operator and a text."""
    return sorted(
        integration
        for integration, summary in integrations.items()
        if text_matches(operator, text, summary.name)
    )
