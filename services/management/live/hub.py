"""Finds the sockets that a change concerns; one per process.

Subscriptions are found by key, so that a change costs as many look-ups as it has keys,
however many sockets there are. Those that follow a pattern are asked one by one, in their
tenant. A second copy of an event is known by its id.
"""

from collections import OrderedDict, defaultdict

from libs.common.changes import Changed
from services.management.live.exchange import Exchange
from services.management.live.following import Pattern
from services.management.live.frames import Value
from services.management.live.subscriber import Listener, Subscriber

REMEMBERED = 20_000
"""Ids of events that are known when they come again."""


class Hub:
    """The sockets of this process; `exchange` tells those of MQTT."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.listeners: set[Listener] = set()
        self._by_key: dict[tuple[str, str], set[Subscriber]] = defaultdict(set)
        self._followers: dict[str, set[Subscriber]] = defaultdict(set)
        """Sockets that follow a pattern, by tenant."""
        self._seen: OrderedDict[str, None] = OrderedDict()

    def enter(self, listener: Listener) -> None:
        """Take a socket that subscribes to nothing yet."""
        self.listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Forget a socket."""
        self.listeners.discard(listener)
        if isinstance(listener, Subscriber):
            self._forget(listener)
            self.follow(listener, None)

    def subscribe(
        self, subscriber: Subscriber, keys: frozenset[str], aliases: dict[str, str]
    ) -> None:
        """Replace what a socket subscribes to; `aliases` are ids by the key they stand for."""
        if subscriber not in self.listeners:
            return
        self._forget(subscriber)
        subscriber.keys, subscriber.aliases = keys, aliases
        for key in (*keys, *aliases):
            self._by_key[subscriber.principal.tenant, key].add(subscriber)

    def follow(self, subscriber: Subscriber, pattern: Pattern | None) -> None:
        """Replace the pattern that a socket follows; None ends it."""
        tenant = subscriber.principal.tenant
        subscriber.follow(pattern)
        if pattern is not None and subscriber in self.listeners:
            self._followers[tenant].add(subscriber)
        elif tenant in self._followers:
            self._followers[tenant].discard(subscriber)
            if not self._followers[tenant]:
                del self._followers[tenant]

    def tell(self, change: Changed) -> None:
        """Push a change to everyone who subscribes to one of its keys and may see it."""
        if change.event_id in self._seen:
            return
        self._seen[change.event_id] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        self.exchange.tell(change)
        found: dict[Subscriber, dict[str, Value]] = {}
        for key, raw in change.values.items():
            value = Value(raw, change.ts)
            for subscriber in self._by_key.get((change.tenant, key), ()):
                if subscriber.sees(change.thing, key):
                    told = found.setdefault(subscriber, {})
                    if key in subscriber.keys:
                        told[key] = value
                    if key in subscriber.aliases:
                        told[subscriber.aliases[key]] = value
        for subscriber, values in found.items():
            subscriber.push(values)
        for subscriber in self._followers.get(change.tenant, ()):
            subscriber.push_change(change)

    def _forget(self, subscriber: Subscriber) -> None:
        for key in (*subscriber.keys, *subscriber.aliases):
            place = subscriber.principal.tenant, key
            sockets = self._by_key.get(place)
            if sockets is not None:
                sockets.discard(subscriber)
                if not sockets:
                    del self._by_key[place]
        subscriber.keys, subscriber.aliases = frozenset(), {}
