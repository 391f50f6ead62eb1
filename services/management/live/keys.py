"""Works a subscription out: ids that stand for keys, and entities granted by themselves.

Most subscriptions need nobody: what a device grant shows is known from the event itself.
`device` is asked only about ids, and about keys of users who hold grants of entities.
"""

from collections.abc import Sequence
from typing import Protocol

from libs.common.contracts.entities import MOST, ResolvedEntity
from services.management.live.hub import Hub
from services.management.live.subscriber import Subscriber


class Entities(Protocol):
    """What `device` knows of entities."""

    async def resolve(
        self, tenant: str, keys: Sequence[str], ids: Sequence[int]
    ) -> Sequence[ResolvedEntity]:
        """The entities that there are; at most `MOST` keys and ids."""


class Subscriptions:
    """Subscribes sockets."""

    def __init__(self, hub: Hub, entities: Entities) -> None:
        self._hub = hub
        self._entities = entities

    async def subscribe(self, subscriber: Subscriber, wanted: frozenset[str]) -> None:
        """Replace what a socket subscribes to; keys that do not exist cost nothing.

        Raises what `device` answers when it is needed.
        """
        ids = [int(key) for key in wanted if key.isdecimal() and len(key) <= _LONGEST_ID]
        keys = frozenset(key for key in wanted if "." in key)
        by_key = {}
        if ids:
            found = await self._entities.resolve(subscriber.principal.tenant, [], ids[:MOST])
            by_key = {entity.key: str(entity.id) for entity in found}
        self._hub.subscribe(subscriber, keys, by_key)
        await self.filter_anew(subscriber)

    async def filter_anew(self, subscriber: Subscriber) -> None:
        """Find again which of its keys are granted by themselves."""
        granted = subscriber.grants.resources.entities
        subscriber.granted_keys = frozenset()
        if subscriber.grants.everything or not granted:
            return
        keys = [*subscriber.keys, *subscriber.aliases]
        if keys:
            found = await self._entities.resolve(subscriber.principal.tenant, keys[:MOST], [])
            subscriber.granted_keys = frozenset(
                entity.key for entity in found if entity.id in granted
            )


_LONGEST_ID = 16
