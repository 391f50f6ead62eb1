"""Tells pages over MQTT which entities changed: their ids, many in one message, no values.

Changes of a tenant are gathered for a moment, each thing once, and then told to all its pages.
What a user sees of them follows from its grants by looking at what changed, and not at what is
granted: that may be far more.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import msgspec

from libs.common.changes import Changed
from libs.common.contracts.mqtt import live_topic, live_user
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from libs.common.jobs import Beside
from libs.common.things import SYSTEM
from services.management.live.numbers import Numbers
from services.management.live.packets import publish
from services.management.live.sockets import TRY_AGAIN, Closer, Turns
from services.management.live.subscriber import Listener

PAUSE = 0.01
"""Seconds for which changes are gathered at least; who shows them asks anew every 10 s."""
REST = 3
"""How many times as long as telling took is gathered at least."""
LONGEST = 0.5
"""Seconds for which changes are gathered at most, however slowly `device` tells their ids."""
MOST_KEYS = 100_000
"""Entity keys of a tenant that wait to be told; things beyond them are dropped, as QoS 0 allows."""


MOST_WAITING = 100_000
"""Ids that wait for a page which does not keep up; with more it is closed."""
ID_BYTES = 8
"""Bytes that an id counts among what waits for all sockets of a tenant."""

MOST_IDS = 1000
"""Ids of one message."""

_encoder = msgspec.json.Encoder()


def payloads(ids: Collection[int]) -> list[bytes]:
    """The messages that tell of `ids`."""
    rest, found = iter(ids), []
    while some := list(map(str, islice(rest, MOST_IDS))):
        found.append(_encoder.encode({"event_type": "EXCHANGE", "payload": {"entity_ids": some}}))
    return found


class MqttListener(Listener):
    """One connection. While the page does not keep up, ids gather: each waits once."""

    def __init__(
        self, principal: Principal, credential: str, grants: Grants, closer: Closer
    ) -> None:
        super().__init__(principal, credential, grants, closer)
        self.topic = live_topic(live_user(principal.user_id))
        self._messages: deque[bytes] = deque()
        self._waiting: set[int] = set()

    def push(self, ids: Collection[int], messages: Sequence[bytes]) -> None:
        """Tell of ids; `messages` are the payloads that do."""
        if self._closed or not ids:
            return
        if self._sending is None:
            self._messages.extend(messages)
        else:
            before = len(self._waiting)
            self._waiting.update(ids)
            self.queued.add((len(self._waiting) - before) * ID_BYTES)
            if len(self._waiting) > (MOST_IDS if self.queued.full else MOST_WAITING):
                self._note_overflow(len(self._waiting))
                self.close(TRY_AGAIN, "too slow")
        self._send()

    def _waits(self) -> bool:
        return bool(self._messages or self._waiting)

    def _next(self) -> bytes:
        if not self._messages:
            ids, self._waiting = self._waiting, set()
            self.queued.add(-len(ids) * ID_BYTES)
            self._messages.extend(payloads(ids))
        return publish(self.topic, self._messages.popleft())


class Exchange:
    """The pages of this process that subscribe; one per process."""

    def __init__(self, numbers: Numbers, turns: Turns) -> None:
        self._numbers = numbers
        self._turns = turns
        self._listeners: dict[str, set[MqttListener]] = defaultdict(set)
        """By tenant."""
        self._gathered: dict[str, _Gathered] = defaultdict(_Gathered)
        self._telling = Beside()

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
        if change.tenant in self._listeners:
            self._gathered[change.tenant].add(change)
            self._telling.begin(change.tenant, partial(self._tell_gathered, change.tenant))

    async def stop(self) -> None:
        """Tell no more."""
        await self._telling.stop()

    async def _tell_gathered(self, tenant: str) -> None:
        clock = asyncio.get_running_loop().time
        while gathered := self._gathered.pop(tenant, None):
            began = clock()
            await self._tell(tenant, list(gathered.changes.values()))
            await asyncio.sleep(min(max(PAUSE, REST * (clock() - began)), LONGEST))

    async def _tell(self, tenant: str, changes: list[Changed]) -> None:
        told = _Changes()
        for change, ids in zip(changes, await self._numbers.ids(changes), strict=True):
            told.add(change, ids)
        messages: dict[int, tuple[Grants, set[int], list[bytes]]] = {}
        """With the grants, so that no others get their id meanwhile."""
        for listener in list(self._listeners.get(tenant, ())):
            grants = listener.grants
            seen = id(grants.resources)  # one for all super-admins, and for all pages of a user
            if seen not in messages:
                async with self._turns.step(tenant):
                    ids_seen = told.seen_with(grants)
                    messages[seen] = grants, ids_seen, payloads(ids_seen)
            listener.push(*messages[seen][1:])


class _Gathered:
    """What changed in a tenant since pages were told, without values."""

    def __init__(self) -> None:
        self.changes: dict[str, Changed] = {}
        """By the key of the thing."""
        self._keys = 0

    def add(self, change: Changed) -> None:
        """Add a change, unless its thing is new and too many keys wait."""
        before = self.changes.get(change.thing.key)
        known = () if before is None else before.values
        if before is not None or self._keys < MOST_KEYS:
            values = dict.fromkeys((*known, *change.values))
            self._keys += len(values) - len(known)
            self.changes[change.thing.key] = replace(change, values=values)


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
