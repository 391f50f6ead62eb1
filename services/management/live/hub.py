"""The distribution of changes to sockets.

Sockets with the same subscription form an audience, for which a change is selected and encoded
once. Audiences are found by key, so that the cost depends on the keys of a change and not on the
number of sockets. Duplicate events are recognized by their id.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from libs.common.changes import ChangedThing, EntityChange
from libs.common.lru_cache import LruCache
from services.management.live.exchange import Exchange
from services.management.live.frames import EncodedChange, Pattern, QueuedBytes, Update, Value
from services.management.live.sockets import Pause
from services.management.live.subscriber import Listener, Subscriber

REMEMBERED = 5_000
"""Event ids per tenant that are remembered to recognize duplicates."""
TENANT_BYTES = 16 * 1024**2
"""Bytes that wait for all sockets of a tenant; beyond it, each keeps one frame, and the latest
value of each key."""

K = TypeVar("K", bound=Hashable)
M = TypeVar("M")
V = TypeVar("V")
E = TypeVar("E")


class Audience:
    """The sockets of a tenant that subscribe to the same keys."""

    def __init__(self, keys: frozenset[str], aliases: Mapping[str, str]) -> None:
        """`aliases` are ids by the key of the entity."""
        self.name = keys, frozenset(aliases.items())
        self.keys = keys
        self.aliases = aliases
        self.entities = keys.union(aliases) if aliases else keys
        """All keys, including those of aliases."""
        self.members: set[Subscriber] = set()

    def update(self, values: Mapping[str, Value]) -> Update:
        """Encode new values by entity key, with the names that the clients use."""
        if not self.aliases:
            return Update.encode(values)
        named = {key: value for key, value in values.items() if key in self.keys}
        ids = {self.aliases[key]: value for key, value in values.items() if key in self.aliases}
        return Update.encode(named | ids)


class _Sockets:
    """The sockets of a tenant, by their subscriptions."""

    def __init__(self) -> None:
        self.number = 0
        self.queued = QueuedBytes(TENANT_BYTES)
        self.audiences: dict[Hashable, Audience] = {}
        self.by_key: dict[str, set[Audience]] = {}
        self.followers: dict[Pattern, set[Subscriber]] = {}
        self.known: LruCache[str, None] = LruCache(REMEMBERED)


class Hub:
    """The sockets of this process; `exchange` serves pages over MQTT."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.listeners: set[Listener] = set()
        self._tenants: defaultdict[str, _Sockets] = defaultdict(_Sockets)
        self._audience_of: dict[Subscriber, Audience] = {}

    def enter(self, listener: Listener) -> None:
        """Add a socket without subscriptions."""
        sockets = self._tenants[listener.principal.tenant]
        sockets.number += 1
        listener.queued.whole = sockets.queued
        self.listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Remove a socket, and its waiting data."""
        if isinstance(listener, Subscriber):
            self.subscribe(listener, frozenset(), {})
            self.follow(listener, None)
        listener.stop()
        self.listeners.discard(listener)
        sockets = self._tenants[listener.principal.tenant]
        sockets.number -= 1
        if not sockets.number:
            del self._tenants[listener.principal.tenant]

    def tenants(self) -> frozenset[str]:
        """Return the tenants that have a socket."""
        return frozenset(self._tenants)

    def listens(self, tenant: str) -> bool:
        """Return whether a tenant has a socket."""
        return tenant in self._tenants

    def subscribe(
        self, subscriber: Subscriber, keys: frozenset[str], aliases: dict[str, str]
    ) -> None:
        """Replace the keys of a socket; `aliases` are ids by the key of the entity."""
        sockets = self._tenants[subscriber.principal.tenant]
        before = self._audience_of.pop(subscriber, None)
        if before is not None:
            before.members.discard(subscriber)
            if not before.members:
                del sockets.audiences[before.name]
                for key in before.entities:
                    _discard(sockets.by_key, key, before)
        subscriber.keys = frozenset()
        if keys or aliases:  # audiences share the texts of keys
            audience = Audience(frozenset(map(sys.intern, keys)), aliases)
            audience = sockets.audiences.setdefault(audience.name, audience)
            if not audience.members:
                for key in audience.entities:
                    sockets.by_key.setdefault(key, set()).add(audience)
            audience.members.add(subscriber)
            self._audience_of[subscriber] = audience
            subscriber.keys = audience.entities

    def follow(self, subscriber: Subscriber, pattern: Pattern | None) -> None:
        """Replace the pattern that a socket follows; None ends it."""
        followers = self._tenants[subscriber.principal.tenant].followers
        if subscriber.pattern is not None:
            _discard(followers, subscriber.pattern, subscriber)
        subscriber.follow(pattern)
        if pattern is not None:
            followers.setdefault(pattern, set()).add(subscriber)

    async def push(self, changes: Sequence[EntityChange], pause: Pause) -> None:
        """Push changes of a tenant to sockets that subscribe to them and may see them.

        Sockets that subscribe to keys get one frame per thing, with the latest values. Duplicate
        events are ignored.
        """
        sockets = self._tenants.get(changes[0].tenant)
        if sockets is None:
            return
        latest: dict[str, tuple[ChangedThing, dict[str, Value]]] = {}
        for change in changes:
            if change.event_id in sockets.known:
                continue
            sockets.known.put(change.event_id, None)
            self.exchange.publish(change)
            _, values = latest.get(change.thing.key, (None, {}))
            latest[change.thing.key] = change.thing, values
            for key, raw in change.values.items():
                if key in sockets.by_key:
                    values[key] = Value(raw, change.ts)
            if sockets.followers:
                await self._push_followed(sockets, change, pause)
        for thing, values in latest.values():
            await self._push_values(sockets, thing, values, pause)

    async def _push_values(
        self, sockets: _Sockets, thing: ChangedThing, values: Mapping[str, Value], pause: Pause
    ) -> None:
        found: dict[Audience, dict[str, Value]] = defaultdict(dict)
        for key, value in values.items():
            for audience in sockets.by_key.get(key, ()):
                found[audience][key] = value
            await pause()
        for audience, shown in found.items():
            for member, update in _shared(audience.members, thing, shown, audience.update):
                member.push(update)
            await pause()

    async def _push_followed(self, sockets: _Sockets, change: EntityChange, pause: Pause) -> None:
        encode = partial(EncodedChange.encode, change)
        for pattern, members in list(sockets.followers.items()):
            for member, encoded in _shared(members, change.thing, pattern.select(change), encode):
                member.push_change(encoded)
            await pause()


def _discard(sets: dict[K, set[M]], key: K, member: M) -> None:
    """Remove a member of a set, and the set when it is empty."""
    sets[key].discard(member)
    if not sets[key]:
        del sets[key]


def _shared(
    members: Iterable[Subscriber],
    thing: ChangedThing,
    values: Mapping[str, V],
    encode: Callable[[Mapping[str, V]], E],
) -> list[tuple[Subscriber, E]]:
    """Return members with their visible part of `values`; equal parts share one object."""
    encoded: dict[frozenset[str] | None, E | None] = {}
    found = []
    for member in members:
        shown = None if member.sees(thing) else member.granted_keys
        if shown not in encoded:
            seen = values
            if shown is not None:
                seen = {key: value for key, value in values.items() if key in shown}
            encoded[shown] = encode(seen) if seen else None
        if (one := encoded[shown]) is not None:
            found.append((member, one))
    return found
