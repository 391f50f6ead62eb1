"""Filters of the search for entities.

A keyword matches an entity's name or key, its device's name, or its integration's. A key is the
key of the thing, a dot, and the path of the member, so a keyword may lie in either or across the
dot between them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from libs.common.integrations.client import ShownIntegration
from libs.common.store.mongo import containing, pattern_of
from libs.common.things import device_key, member_key
from services.device.entities.schemas import SearchEntities
from services.device.members.entity import EntityThing
from services.device.members.members import Member, MemberSet
from services.device.things.visibility import NOTHING, Condition

_DEVICE_PARTS = 3
"""Parts of the key of a device between dots."""


class MemberFilter:
    """The filters of a search that look at members alone."""

    def __init__(self, search: SearchEntities) -> None:
        self._types = frozenset(search.entity_type or ())
        self._value_types = frozenset(search.entity_value_type or ())
        self._access_mods = frozenset(search.entity_access_mod or ())
        self._names = frozenset(search.entity_names or ())
        self._parents_only = bool(search.exclude_children)
        self._hidden = bool(search.show_hidden)

    def __call__(self, members: MemberSet) -> list[Member]:
        """Those that pass."""
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


class KeyTest(Protocol):
    """What a search tests keys by, and perhaps names.

    It matches all entities of a thing (`in_thing`), or a member whatever thing it belongs to
    (`in_member`), or lies across the dot between the two: then `splits` are the ways to cut it.
    """

    splits: Sequence[tuple[str, str]]
    """How the thing's key ends, how the path begins."""

    def in_thing(self, thing: EntityThing) -> bool:
        """Whether it matches all entities of a thing."""

    def in_member(self, member: Member) -> bool:
        """Whether it matches a member, whatever thing it belongs to."""

    def fits(self, member: Member, tail: str) -> bool:
        """Whether the last part of a split matches a member."""

    def across(self, thing: EntityThing, member: Member) -> bool:
        """Whether a split matches a member of a thing."""

    def devices(self, integrations: Iterable[str]) -> list[dict[str, Any]]:
        """Conditions on devices, any of which is `in_thing`; `integrations` are those in use."""

    def devices_ending(self, head: str, integrations: Iterable[str]) -> dict[str, Any]:
        """The condition on devices that the first part of a split matches."""


def finds(test: KeyTest, thing: EntityThing, member: Member) -> bool:
    """Whether a test matches a member of a thing."""
    return test.in_member(member) or test.in_thing(thing) or test.across(thing, member)


class Keyword:
    """A text in the keys or names of entities, among the integrations of a tenant."""

    def __init__(
        self,
        text: str,
        integrations: Mapping[str, ShownIntegration],
        *,
        names: bool = True,
        keys: bool = True,
    ) -> None:
        """`names` are also those of things and integrations."""
        self._text = text
        self._lower = text.lower()
        self._names, self._keys = names, keys
        self._find = re.compile(pattern_of(text), re.IGNORECASE).search
        self._named = {
            one
            for one, known in integrations.items()
            if names and known.name and self._find(known.name)
        }
        parts = self._lower.split(".")
        self.splits: Sequence[tuple[str, str]] = [
            (".".join(parts[:at]), ".".join(parts[at:]))
            for at in range(1, len(parts))
            if keys and parts[at - 1] and parts[at]
        ]

    def in_thing(self, thing: EntityThing) -> bool:
        """Whether it matches all entities of a thing."""
        return (
            thing.integration in self._named
            or bool(self._names and thing.name and self._find(thing.name))
            or (self._keys and self._lower in f"{thing.key}.".lower())
        )

    def in_member(self, member: Member) -> bool:
        """Whether it matches a member, whatever thing it belongs to."""
        named = self._names and bool(self._find(member.name))
        return named or (self._keys and self._lower in f".{member.path}".lower())

    def fits(self, member: Member, tail: str) -> bool:
        """Whether the path of a member begins with `tail`."""
        return member.path.lower().startswith(tail)

    def across(self, thing: EntityThing, member: Member) -> bool:
        """Whether it lies across the dot between the thing's key and the path."""
        return any(
            self.fits(member, tail) and thing.key.lower().endswith(head)
            for head, tail in self.splits
        )

    def devices(self, integrations: Iterable[str]) -> list[dict[str, Any]]:
        """Conditions on devices, any of which is `in_thing`; `integrations` are those in use."""
        found: list[dict[str, Any]] = [{"name": containing(self._text)}] if self._names else []
        whole: set[str] = set(self._named)
        if self._keys:
            found += self._with_keys(integrations, whole)
        if whole:
            found.append({"integration": {"$in": sorted(whole)}})
        return found

    def _with_keys(self, integrations: Iterable[str], whole: set[str]) -> Iterator[dict[str, Any]]:
        """The conditions on keys; integrations all of whose devices match go to `whole`."""
        body = self._lower.removesuffix(".")
        end = "$" if body != self._lower else ""
        if "." not in body:
            yield {"snKey": {"$regex": pattern_of(body.upper()) + end}}
        for integration in integrations:
            before = device_key(integration, "").lower()
            if self._lower in before:
                whole.add(integration)
                continue
            for serial in _beginnings(body, before):
                begins = {"$regex": f"^{pattern_of(serial.upper())}{end}"}
                yield {"integration": integration, "snKey": begins}

    def devices_ending(self, head: str, integrations: Iterable[str]) -> dict[str, Any]:
        """The condition on devices whose keys end with `head`."""
        found: list[dict[str, Any]] = []
        if "." not in head:
            found.append({"snKey": {"$regex": f"{pattern_of(head.upper())}$"}})
        found.extend(
            {"integration": integration, "snKey": serial.upper()}
            for integration in integrations
            for serial in _beginnings(head, device_key(integration, "").lower())
        )
        return _either(found)


class KeyBegins:
    """How keys begin."""

    def __init__(self, text: str) -> None:
        self._lower = text.lower()
        parts = self._lower.split(".", _DEVICE_PARTS)
        whole = len(parts) > _DEVICE_PARTS
        self.splits: Sequence[tuple[str, str]] = (
            [(".".join(parts[:-1]), parts[-1])] if whole else []
        )

    def in_thing(self, thing: EntityThing) -> bool:
        """Whether all keys of a thing begin so."""
        return thing.key.lower().startswith(self._lower)

    def in_member(self, member: Member) -> bool:
        """None: a key begins with that of its thing."""
        return False

    def fits(self, member: Member, tail: str) -> bool:
        """Whether the path of a member begins with `tail`."""
        return member.path.lower().startswith(tail)

    def across(self, thing: EntityThing, member: Member) -> bool:
        """Whether the text goes on behind the thing's key."""
        return member_key(thing.key, member.path).lower().startswith(self._lower)

    def devices(self, integrations: Iterable[str]) -> list[dict[str, Any]]:
        """Devices whose keys begin so."""
        found: list[dict[str, Any]] = []
        for integration in integrations:
            before = device_key(integration, "").lower()
            rest = self._lower.removeprefix(before)
            if before.startswith(self._lower):
                found.append({"integration": integration})
            elif rest != self._lower and "." not in rest:
                serial = {"$regex": f"^{pattern_of(rest.upper())}"}
                found.append({"integration": integration, "snKey": serial})
        return found

    def devices_ending(self, head: str, integrations: Iterable[str]) -> dict[str, Any]:
        """The device whose key is `head`."""
        return _either(
            {"integration": integration, "snKey": head.removeprefix(before).upper()}
            for integration in integrations
            if head.startswith(before := device_key(integration, "").lower())
        )


class KeyEnds(Keyword):
    """How keys end."""

    def __init__(self, text: str) -> None:
        super().__init__(text, {}, names=False)

    def in_thing(self, thing: EntityThing) -> bool:
        """None: a key does not end with that of its thing."""
        return False

    def in_member(self, member: Member) -> bool:
        """Whether the path of a member ends so."""
        return bool(member.path) and f".{member.path}".lower().endswith(self._lower)

    def fits(self, member: Member, tail: str) -> bool:
        """Whether `tail` is the path of a member."""
        return member.path.lower() == tail

    def across(self, thing: EntityThing, member: Member) -> bool:
        """Whether the text begins before the path."""
        return member_key(thing.key, member.path).lower().endswith(self._lower)

    def devices(self, integrations: Iterable[str]) -> list[dict[str, Any]]:
        """None has such keys only."""
        return []


def _either(conditions: Iterable[dict[str, Any]]) -> dict[str, Any]:
    found = list(conditions)
    return {"$or": found} if found else NOTHING


def _beginnings(text: str, before: str) -> Iterator[str]:
    """How an SN begins when `text` begins somewhere in `before`, which precedes the SN."""
    for length in range(1, len(text)):
        rest = text[length:]
        if before.endswith(text[:length]) and "." not in rest:
            yield rest


FIELD = "entity_filter"
"""Where an advanced search names its filters."""
NEGATED = {"NE": "EQ", "NOT_CONTAINS": "CONTAINS", "IS_NOT_EMPTY": "IS_EMPTY"}
"""Operators that are others turned around."""
_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda name, text: text.lower() in name.lower(),
    "EQ": lambda name, text: name == text,
    "START_WITH": lambda name, text: name.lower().startswith(text.lower()),
    "END_WITH": lambda name, text: name.lower().endswith(text.lower()),
    "IS_EMPTY": lambda name, _: not name,
}


def text_fits(operator: str, text: str, name: str | None) -> bool:
    """Whether a name meets an operator; what has none is what an empty name is."""
    negated = operator in NEGATED
    return _TESTS[NEGATED.get(operator, operator)](name or "", text) != negated


def text_condition(field_name: str, operator: str, text: str) -> Condition:
    """The same of a stored field."""
    conditions: dict[str, Any] = {
        "CONTAINS": containing(text, FIELD),
        "EQ": {"$eq": text},
        "START_WITH": {"$regex": f"^{pattern_of(text, FIELD)}", "$options": "i"},
        "END_WITH": {"$regex": f"{pattern_of(text, FIELD)}$", "$options": "i"},
    }
    positive = conditions[NEGATED.get(operator, operator)]
    return {field_name: {"$not": positive} if operator in NEGATED else positive}


@dataclass
class TextFilter:
    """Filters of things: as conditions on devices, and of any thing."""

    conditions: list[Condition] = field(default_factory=list)
    tests: list[Callable[[EntityThing], bool]] = field(default_factory=list)

    @classmethod
    def of_source(
        cls, name: str | None, integrations: Mapping[str, ShownIntegration]
    ) -> "TextFilter":
        """Things whose device or integration has a name with this part; all for none."""
        found = cls()
        if name:
            named = integrations_named("CONTAINS", name, integrations)
            found.conditions.append(
                {
                    "$or": [
                        {"name": containing(name, "entity_source_name")},
                        {"integration": {"$in": named}},
                    ]
                }
            )
            found.tests.append(
                lambda thing: thing.integration in named or text_fits("CONTAINS", name, thing.name)
            )
        return found

    def fits(self, thing: EntityThing) -> bool:
        """Whether a thing meets all."""
        return all(test(thing) for test in self.tests)


def integrations_named(
    operator: str, text: str, integrations: Mapping[str, ShownIntegration]
) -> Sequence[str]:
    """The integrations whose names meet an operator."""
    return sorted(
        one for one, known in integrations.items() if text_fits(operator, text, known.name)
    )
