"""Works a subscription out: ids that stand for keys, and entities granted by themselves.

Most subscriptions need nobody: what a device grant shows is known from the event itself.
`device` is asked only about ids, and about keys of users who hold grants of entities.
"""

from typing import Any

from libs.common.bus import RpcClient
from libs.common.contracts.entities import (
    MOST,
    RESOLVE,
    ResolvedEntities,
    ResolvedEntity,
    ResolveEntities,
)
from libs.common.http.ids import find_id
from services.management.live.admission import Admission
from services.management.live.closing import Turns
from services.management.live.following import Pattern
from services.management.live.hub import Hub
from services.management.live.subscriber import Subscriber


class Subscriptions:
    """Subscribes sockets."""

    def __init__(self, hub: Hub, rpc: RpcClient, admission: Admission, turns: Turns) -> None:
        self._hub = hub
        self._rpc = rpc
        self._admission = admission
        self.turns = turns

    async def subscribe(self, subscriber: Subscriber, wanted: frozenset[str]) -> None:
        """Replace what a socket subscribes to; keys need not exist.

        Raises `TooManyRequests`, and what `device` answers when it is needed.
        """
        self._admission.count_keys(subscriber, len(wanted))
        ids = [number for key in wanted if (number := find_id(key))]
        keys = frozenset(key for key in wanted if "." in key)
        by_key = {}
        if ids:
            found = await self._resolve(subscriber, ids=ids[:MOST])
            by_key = {entity.key: str(entity.id) for entity in found}
        async with self.turns.step(subscriber.principal.tenant):
            self._hub.subscribe(subscriber, keys, by_key)
        await self.filter_anew(subscriber)

    def leave(self, subscriber: Subscriber) -> None:
        """Forget a socket."""
        self._hub.leave(subscriber)
        self._admission.count_keys(subscriber, 0)

    async def follow(self, subscriber: Subscriber, pattern: Pattern | None) -> None:
        """Replace the pattern that a socket follows; raise as `subscribe` does."""
        self._hub.follow(subscriber, pattern)
        await self.filter_anew(subscriber)

    async def filter_anew(self, subscriber: Subscriber) -> None:
        """Find again which of its keys are granted by themselves; any may fit a pattern."""
        granted = subscriber.grants.resources.entities
        subscriber.granted_keys = frozenset()
        if subscriber.grants.everything or not granted:
            return
        keys = list(subscriber.keys)
        if subscriber.pattern is not None:
            ids = sorted(granted)
            answers = [
                await self._resolve(subscriber, ids=ids[start : start + MOST])
                for start in range(0, len(ids), MOST)
            ]
            subscriber.granted_keys = frozenset(one.key for found in answers for one in found)
        elif keys:
            found = await self._resolve(subscriber, keys=keys[:MOST])
            subscriber.granted_keys = frozenset(
                entity.key for entity in found if entity.id in granted
            )

    async def _resolve(self, subscriber: Subscriber, **named: Any) -> list[ResolvedEntity]:
        """The entities that there are; at most `MOST` keys and ids."""
        wanted = ResolveEntities(tenant=subscriber.principal.tenant, **named)
        return (await self._rpc.call(RESOLVE, wanted, ResolvedEntities)).entities
