"""The sockets of this process, by tenant."""

from weakref import WeakValueDictionary

from libs.common.changes import Changed
from services.management.live.audiences import TenantSockets
from services.management.live.exchange import Exchange
from services.management.live.following import Pattern
from services.management.live.queued import QueuedBytes
from services.management.live.subscriber import Listener, Subscriber
from services.management.live.turns import Pause


class Hub:
    """The sockets of this process; `exchange` tells those of MQTT."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.listeners: set[Listener] = set()
        self._tenants: dict[str, TenantSockets] = {}
        """Tenants with subscriptions."""
        self._queued: WeakValueDictionary[str, QueuedBytes] = WeakValueDictionary()

    def queued(self, tenant: str) -> QueuedBytes:
        """Return the counter of bytes that wait for all sockets of a tenant."""
        return self._queued.setdefault(tenant, QueuedBytes(tenant))

    def enter(self, listener: Listener) -> None:
        """Add a socket that subscribes to nothing yet."""
        self.listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Forget a socket."""
        if isinstance(listener, Subscriber):
            self.subscribe(listener, frozenset(), {})
            self.follow(listener, None)
        self.listeners.discard(listener)

    def subscribe(
        self, subscriber: Subscriber, keys: frozenset[str], aliases: dict[str, str]
    ) -> None:
        """Replace what a socket subscribes to; `aliases` are ids by the key they stand for."""
        if subscriber in self.listeners:
            self._tenant(subscriber).subscribe(subscriber, keys, aliases)
            self._forget_empty(subscriber)

    def follow(self, subscriber: Subscriber, pattern: Pattern | None) -> None:
        """Replace the pattern that a socket follows; None ends it."""
        if subscriber in self.listeners:
            self._tenant(subscriber).follow(subscriber, pattern)
            self._forget_empty(subscriber)

    def listens(self, tenant: str) -> bool:
        """Return whether a change in a tenant concerns any socket."""
        return tenant in self._tenants or self.exchange.listens(tenant)

    async def push(self, change: Changed, pause: Pause) -> None:
        """Push a change to everyone who subscribes to one of its keys and may see it."""
        self.exchange.tell(change)
        sockets = self._tenants.get(change.tenant)
        if sockets is not None:
            await sockets.push(change, pause)

    def _tenant(self, subscriber: Subscriber) -> TenantSockets:
        return self._tenants.setdefault(subscriber.principal.tenant, TenantSockets())

    def _forget_empty(self, subscriber: Subscriber) -> None:
        tenant = subscriber.principal.tenant
        if not self._tenants[tenant]:
            del self._tenants[tenant]
