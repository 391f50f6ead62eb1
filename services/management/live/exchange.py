"""Tells pages over MQTT which entities changed: their ids, many in one message, no values.

Changes are gathered for a moment and then told to all at once. What a user sees of them follows
from its grants by looking at what changed, and not at what is granted: that may be far more.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from libs.common.changes import Changed
from libs.common.identity.grants import Grants
from libs.common.things import SYSTEM
from services.management.live.listener import MqttListener, payloads
from services.management.live.numbers import Numbers

PAUSE = 0.01
"""Seconds for which changes are gathered at least; who shows them asks anew every 10 s."""
REST = 3
"""How many times as long as telling took is gathered at least: telling has a quarter of a core."""
LONGEST = 0.5
"""Seconds for which changes are gathered at most, however slowly `device` tells their ids."""
MOST_CHANGES = 50_000
"""Changes that wait to be told; of more the newest are dropped, as QoS 0 allows."""


class Exchange:
    """The pages of this process that subscribe; one per process."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._listeners: dict[str, set[MqttListener]] = defaultdict(set)
        """By tenant."""
        self._changes: list[Changed] = []
        self._changed = asyncio.Event()

    def subscribe(self, listener: MqttListener) -> None:
        """Tell a page from now on; repeatable."""
        self._listeners[listener.principal.tenant].add(listener)

    def leave(self, listener: MqttListener) -> None:
        """Tell a page no more; repeatable."""
        tenant = listener.principal.tenant
        self._listeners[tenant].discard(listener)
        if not self._listeners[tenant]:
            del self._listeners[tenant]

    def tell(self, change: Changed) -> None:
        """Tell of a change soon, when somebody of its tenant listens."""
        if change.tenant in self._listeners and len(self._changes) < MOST_CHANGES:
            self._changes.append(change)
            self._changed.set()

    async def run(self) -> None:
        """Tell for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            await self._changed.wait()
            self._changed.clear()
            changes, self._changes = self._changes, []
            began = clock()
            await self._tell(changes)
            await asyncio.sleep(min(max(PAUSE, REST * (clock() - began)), LONGEST))

    async def _tell(self, changes: list[Changed]) -> None:
        found: dict[str, _Changes] = defaultdict(_Changes)
        for change, ids in zip(changes, await self._numbers.ids(changes), strict=True):
            if ids:
                found[change.tenant].add(change, ids)
        for tenant, told in found.items():
            messages: dict[int, tuple[set[int], list[bytes]]] = {}
            for listener in self._listeners.get(tenant, ()):
                grants = listener.grants
                seen = id(grants.resources)  # one for all super-admins, and for all pages of a user
                if seen not in messages:
                    ids_seen = told.seen_with(grants)
                    messages[seen] = ids_seen, payloads(ids_seen)
                listener.push(*messages[seen])


class _Changes:
    """Ids of what changed in a tenant, by what may be granted."""

    def __init__(self) -> None:
        self._all: set[int] = set()
        self._custom: set[int] = set()
        self._devices: dict[int, set[int]] = defaultdict(set)
        self._groups: dict[int, set[int]] = defaultdict(set)
        self._integrations: dict[str, set[int]] = defaultdict(set)

    def add(self, change: Changed, ids: Iterable[int]) -> None:
        """Take the ids of one change."""
        thing = change.thing
        self._all.update(ids)
        if thing.device:
            self._devices[thing.id].update(ids)
            if thing.group is not None:
                self._groups[thing.group].update(ids)
        elif thing.integration == SYSTEM:
            self._custom.update(ids)
        self._integrations[thing.integration].update(ids)

    def seen_with(self, grants: Grants) -> set[int]:
        """The ids that a user sees, as `Grants.thing` and `Grants.entity` say it."""
        if grants.everything:
            return self._all
        granted = grants.resources
        found = self._custom | (self._all & granted.entities)
        for device in granted.devices.intersection(self._devices):
            found |= self._devices[device]
        for group in granted.groups.intersection(self._groups):
            found |= self._groups[group]
        for integration in granted.integrations.intersection(self._integrations):
            found |= self._integrations[integration]
        return found
