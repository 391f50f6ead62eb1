"""What a search matches, by filters and by a keyword.

A keyword matches an entity's name or key, its device's name, or its integration's. A key is the
key of the thing, a dot, and the path of the member, so a keyword may lie in either or across the
dot between them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from libs.common.store.mongo import containing, pattern_of
from libs.common.things import device_key
from services.device.entities.schemas import SearchEntities
from services.device.members.entity import EntityThing
from services.device.members.member import Member
from services.device.things.integrations import ShownIntegration
from services.device.things.seen import NOTHING


class MemberFilter:
    """The filters of a search that look at members alone."""

    def __init__(self, search: SearchEntities) -> None:
        self._types = frozenset(search.entity_type or ())
        self._value_types = frozenset(search.entity_value_type or ())
        self._access_mods = frozenset(search.entity_access_mod or ())
        self._parents_only = bool(search.exclude_children)
        self._hidden = bool(search.show_hidden)

    def __call__(self, members: Iterable[Member]) -> list[Member]:
        """Those that pass."""
        return [member for member in members if self._passes(member)]

    def _passes(self, member: Member) -> bool:
        return (
            (not self._types or member.type in self._types)
            and (not self._value_types or member.value_type in self._value_types)
            and (not self._access_mods or member.access_mod in self._access_mods)
            and (not self._parents_only or member.parent is None)
            and (self._hidden or member.visible)
        )


class Keyword:
    """A keyword among the integrations of a tenant."""

    def __init__(self, text: str, integrations: Mapping[str, ShownIntegration]) -> None:
        self._text = text
        self._lower = text.lower()
        self._find = re.compile(re.escape(text), re.IGNORECASE).search
        self._named = {
            one for one, known in integrations.items() if known.name and self._find(known.name)
        }
        parts = self._lower.split(".")
        self.splits = [
            (".".join(parts[:at]), ".".join(parts[at:]))
            for at in range(1, len(parts))
            if parts[at - 1] and parts[at]
        ]
        """The keyword across the dot: how the thing's key ends, how the path begins."""

    def in_thing(self, thing: EntityThing) -> bool:
        """Whether it matches all entities of a thing."""
        return (
            thing.integration in self._named
            or bool(thing.name and self._find(thing.name))
            or self._lower in f"{thing.key}.".lower()
        )

    def in_member(self, member: Member) -> bool:
        """Whether it matches a member, whatever thing it belongs to."""
        return bool(self._find(member.name)) or self._lower in f".{member.path}".lower()

    def across(self, thing: EntityThing, member: Member) -> bool:
        """Whether it lies across the dot between the thing's key and the path."""
        return any(
            path_begins(member, tail) and thing.key.lower().endswith(head)
            for head, tail in self.splits
        )

    def finds(self, thing: EntityThing, member: Member) -> bool:
        """Whether it matches a member of a thing."""
        return self.in_member(member) or self.in_thing(thing) or self.across(thing, member)

    def devices(self, integrations: Iterable[str]) -> list[dict[str, Any]]:
        """Conditions on devices, any of which is `in_thing`; `integrations` are those in use."""
        found: list[dict[str, Any]] = [{"name": containing(self._text)}]
        body = self._lower.removesuffix(".")
        end = "$" if body != self._lower else ""
        if "." not in body:
            found.append({"snKey": {"$regex": pattern_of(body.upper()) + end}})
        whole: set[str] = set(self._named)
        for integration in integrations:
            before = device_key(integration, "").lower()
            if self._lower in before:
                whole.add(integration)
                continue
            for serial in _beginnings(body, before):
                begins = {"$regex": f"^{pattern_of(serial.upper())}{end}"}
                found.append({"integration": integration, "snKey": begins})
        if whole:
            found.append({"integration": {"$in": sorted(whole)}})
        return found

    @staticmethod
    def devices_ending(head: str, integrations: Iterable[str]) -> dict[str, Any]:
        """The condition on devices whose keys end with `head`."""
        found: list[dict[str, Any]] = []
        if "." not in head:
            found.append({"snKey": {"$regex": f"{pattern_of(head.upper())}$"}})
        found.extend(
            {"integration": integration, "snKey": serial.upper()}
            for integration in integrations
            for serial in _beginnings(head, device_key(integration, "").lower())
        )
        return {"$or": found} if found else NOTHING


def path_begins(member: Member, tail: str) -> bool:
    """Whether the path of a member begins with `tail` (lower case)."""
    return member.path.lower().startswith(tail)


def _beginnings(text: str, before: str) -> Iterator[str]:
    """How an SN begins when `text` begins somewhere in `before`, which precedes the SN."""
    for length in range(1, len(text)):
        rest = text[length:]
        if before.endswith(text[:length]) and "." not in rest:
            yield rest
