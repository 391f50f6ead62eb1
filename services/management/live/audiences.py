"""Sockets of a tenant that are sent the same: a change is selected and encoded once for all.

Sockets with the same subscription form an audience. Of these, all members that see the whole thing
share one frame, and so do members with the same granted keys.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from libs.common.changes import Changed, ChangedThing
from libs.common.recent import Recent
from services.management.live.following import EncodedChange, Pattern
from services.management.live.frames import Update, Value
from services.management.live.subscriber import Subscriber
from services.management.live.turns import Pause

REMEMBERED = 5_000
"""Ids of a tenant's events that are known when they come again."""

V = TypeVar("V")
E = TypeVar("E")
Key = tuple[frozenset[str], frozenset[tuple[str, str]]]
"""Keys, and ids with the key that they stand for."""


class Audience:
    """The sockets that subscribe to the same keys."""

    def __init__(self, keys: Iterable[str], aliases: Mapping[str, str]) -> None:
        """`aliases` are ids by the key that they stand for."""
        self.keys = frozenset(map(sys.intern, keys))  # other audiences may have the same keys
        self.aliases = aliases
        self.entities = self.keys.union(aliases) if aliases else self.keys
        """All keys, also those that ids stand for."""
        self.members: set[Subscriber] = set()

    def push(self, thing: ChangedThing, values: Mapping[str, Value]) -> None:
        """Send new values by entity key, as far as each member sees them."""
        for member, update in _shared(self.members, thing, values, self._update):
            member.push(update)

    def _update(self, values: Mapping[str, Value]) -> Update:
        if not self.aliases:
            return Update(values)
        named = {key: value for key, value in values.items() if key in self.keys}
        ids = {self.aliases[key]: value for key, value in values.items() if key in self.aliases}
        return Update(named | ids)


class Followers:
    """The sockets that follow the same pattern."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self.members: set[Subscriber] = set()

    def push(self, change: Changed) -> None:
        """Send the values that fit the pattern, as far as each member sees them."""
        values = self._pattern.select(change)

        def encode(seen: Mapping[str, object]) -> EncodedChange:
            return EncodedChange.of(change, seen)

        for member, encoded in _shared(self.members, change.thing, values, encode):
            member.push_change(encoded)


class TenantSockets:
    """The sockets of one tenant that subscribe to something."""

    def __init__(self) -> None:
        self._audiences: dict[Key, Audience] = {}
        self._audience_of: dict[Subscriber, Audience] = {}
        self._by_key: dict[str, set[Audience]] = {}
        self._followers: dict[Pattern, Followers] = {}
        self._known: Recent[str, None] = Recent(REMEMBERED)

    def __bool__(self) -> bool:
        return bool(self._audiences or self._followers)

    def subscribe(
        self, subscriber: Subscriber, keys: frozenset[str], aliases: Mapping[str, str]
    ) -> None:
        """Replace the keys that a socket subscribes to."""
        self._leave(subscriber)
        if keys or aliases:
            name = keys, frozenset(aliases.items())
            audience = self._audiences.get(name)
            if audience is None:
                audience = Audience(keys, aliases)
                self._audiences[audience.keys, name[1]] = audience
                for key in audience.entities:
                    self._by_key.setdefault(key, set()).add(audience)
            audience.members.add(subscriber)
            self._audience_of[subscriber] = audience
            subscriber.keys = audience.entities

    def follow(self, subscriber: Subscriber, pattern: Pattern | None) -> None:
        """Replace the pattern that a socket follows."""
        before = subscriber.pattern
        if before is not None and before in self._followers:
            members = self._followers[before].members
            members.discard(subscriber)
            if not members:
                del self._followers[before]
        subscriber.follow(pattern)
        if pattern is not None:
            self._followers.setdefault(pattern, Followers(pattern)).members.add(subscriber)

    async def push(self, change: Changed, pause: Pause) -> None:
        """Send a change to all who subscribe to it and see it; a second copy changes nothing."""
        if change.event_id in self._known:
            return
        self._known.put(change.event_id, None)
        found: dict[Audience, dict[str, Value]] = defaultdict(dict)
        for key, raw in change.values.items():
            audiences = self._by_key.get(key)
            if audiences:
                value = Value(raw, change.ts)
                for audience in audiences:
                    found[audience][key] = value
                await pause()
        for audience, values in found.items():
            audience.push(change.thing, values)
            await pause()
        for followers in list(self._followers.values()):
            followers.push(change)
            await pause()

    def _leave(self, subscriber: Subscriber) -> None:
        subscriber.keys = frozenset()
        audience = self._audience_of.pop(subscriber, None)
        if audience is None:
            return
        audience.members.discard(subscriber)
        if audience.members:
            return
        del self._audiences[audience.keys, frozenset(audience.aliases.items())]
        for key in audience.entities:
            self._by_key[key].discard(audience)
            if not self._by_key[key]:
                del self._by_key[key]


def _shared(
    members: Iterable[Subscriber],
    thing: ChangedThing,
    values: Mapping[str, V],
    encode: Callable[[Mapping[str, V]], E],
) -> Iterator[tuple[Subscriber, E]]:
    """Yield members with what they see of `values`; members that see the same share one object."""
    encoded: dict[frozenset[str] | None, E] = {}
    for member in members:
        shown = None if member.sees(thing) else member.granted_keys
        if shown not in encoded:
            seen = values
            if shown is not None:
                seen = {key: value for key, value in values.items() if key in shown}
            if not seen:
                continue
            encoded[shown] = encode(seen)
        yield member, encoded[shown]
