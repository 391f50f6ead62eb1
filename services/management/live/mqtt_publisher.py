"""Publishing the ids of changed entities to pages over MQTT, without values.

Changes of a tenant are collected for a moment, once per thing, and then sent to all its pages. The
collected changes are filtered by the grants of each user. A list of all granted entities would be
far longer.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import msgspec

from libs.common.changes import EntityChange
from libs.common.contracts.mqtt import live_mqtt_user, live_topic
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from libs.common.jobs import NamedTasks
from libs.common.things import SYSTEM_INTEGRATION
from services.management.live.entity_ids import EntityIds
from services.management.live.packets import encode_publish
from services.management.live.sockets import TRY_AGAIN, LiveSocket, SocketTurns
from services.management.live.subscriber import Listener

MIN_COLLECT_SECONDS = 0.01
"""Minimum seconds for which changes are collected."""
COLLECT_RATIO = 3
"""Changes are collected for this multiple of the time that the last publishing took."""
MAX_COLLECT_SECONDS = 0.5
"""Maximum seconds for which changes are collected, even if `device` is slow."""
MAX_COLLECTED_KEYS_PER_TENANT = 100_000
"""Maximum collected entity keys per tenant; changes of further things are dropped (QoS 0)."""


MAX_WAITING_IDS_PER_PAGE = 100_000
"""Maximum ids that wait for a slow page; beyond it, its connection is closed."""
BYTES_PER_WAITING_ID = 8
"""Bytes that each waiting id uses of the limit of a tenant's sockets."""

MAX_IDS_PER_MESSAGE = 1000
"""Maximum ids per message."""

_encoder = msgspec.json.Encoder()


def encode_ids(ids: Collection[int]) -> list[bytes]:
    """Return the payloads of the messages that have `ids`."""
    rest, messages = iter(ids), []
    while chunk := list(map(str, islice(rest, MAX_IDS_PER_MESSAGE))):
        messages.append(
            _encoder.encode({"event_type": "EXCHANGE", "payload": {"entity_ids": chunk}})
        )
    return messages


class MqttListener(Listener):
    """An MQTT connection of a page. While the page is slow, each changed id waits once."""

    def __init__(
        self, principal: Principal, credential: str, grants: Grants, live_socket: LiveSocket
    ) -> None:
        super().__init__(principal, credential, grants, live_socket)
        self.topic = live_topic(live_mqtt_user(principal.user_id))
        self._messages: deque[bytes] = deque()
        self._waiting: set[int] = set()

    def push(self, ids: Collection[int], messages: Sequence[bytes]) -> None:
        """Send ids; `messages` are the payloads with these ids."""
        if self._closed or not ids:
            return
        if self._sending is None:
            self._messages.extend(messages)
        else:
            before = len(self._waiting)
            self._waiting.update(ids)
            self.queued.add((len(self._waiting) - before) * BYTES_PER_WAITING_ID)
            if len(self._waiting) > (
                MAX_IDS_PER_MESSAGE if self.queued.is_full else MAX_WAITING_IDS_PER_PAGE
            ):
                self._count_dropped(len(self._waiting))
                self.close(TRY_AGAIN, "too slow")
        self._start_sending()

    def _has_waiting(self) -> bool:
        return bool(self._messages or self._waiting)

    def _pop_next(self) -> bytes:
        if not self._messages:
            ids, self._waiting = self._waiting, set()
            self.queued.add(-len(ids) * BYTES_PER_WAITING_ID)
            self._messages.extend(encode_ids(ids))
        return encode_publish(self.topic, self._messages.popleft())


class MqttPublisher:
    """Sends the ids of changed entities to the subscribed pages of this process."""

    def __init__(self, entity_ids: EntityIds, turns: SocketTurns) -> None:
        self._entity_ids = entity_ids
        self._turns = turns
        self._listeners: dict[str, set[MqttListener]] = defaultdict(set)
        """Pages by tenant."""
        self._collected: dict[str, _CollectedChanges] = defaultdict(_CollectedChanges)
        self._publishing = NamedTasks()

    def add_listener(self, listener: MqttListener) -> None:
        """Start sending to a page; may be repeated."""
        self._listeners[listener.principal.tenant].add(listener)

    def remove_listener(self, listener: MqttListener) -> None:
        """Stop sending to a page; may be repeated."""
        tenant = listener.principal.tenant
        self._listeners[tenant].discard(listener)
        if not self._listeners[tenant]:
            del self._listeners[tenant]

    def collect(self, change: EntityChange) -> None:
        """Collect a change for the next messages, if a page of its tenant is subscribed."""
        if change.tenant in self._listeners:
            self._collected[change.tenant].add(change)
            self._publishing.start(change.tenant, partial(self._publish_collected, change.tenant))

    async def stop(self) -> None:
        """Stop sending."""
        await self._publishing.stop()

    async def _publish_collected(self, tenant: str) -> None:
        clock = asyncio.get_running_loop().time
        while collected := self._collected.pop(tenant, None):
            began = clock()
            await self._publish(tenant, list(collected.changes.values()))
            await asyncio.sleep(
                min(
                    max(MIN_COLLECT_SECONDS, COLLECT_RATIO * (clock() - began)), MAX_COLLECT_SECONDS
                )
            )

    async def _publish(self, tenant: str, changes: list[EntityChange]) -> None:
        collected = _ChangedIds()
        for change, ids in zip(changes, await self._entity_ids.find_ids(changes), strict=True):
            collected.add(change, ids)
        messages: dict[int, tuple[Grants, set[int], list[bytes]]] = {}
        """By the `id()` of the granted resources, with the grants, so that Python keeps the id."""
        for listener in list(self._listeners.get(tenant, ())):
            grants = listener.grants
            grants_identity = id(
                grants.resources
            )  # super-admins share grants, and so do the pages of a user
            if grants_identity not in messages:
                async with self._turns.step(tenant):
                    visible_ids = collected.visible_ids(grants)
                    messages[grants_identity] = grants, visible_ids, encode_ids(visible_ids)
            listener.push(*messages[grants_identity][1:])


class _CollectedChanges:
    """Collected changes of a tenant, without values."""

    def __init__(self) -> None:
        self.changes: dict[str, EntityChange] = {}
        """Changes by the key of the thing."""
        self._keys = 0

    def add(self, change: EntityChange) -> None:
        """Add a change; a new thing is dropped if too many keys wait."""
        before = self.changes.get(change.thing.key)
        known_keys = () if before is None else before.values
        if before is not None or self._keys < MAX_COLLECTED_KEYS_PER_TENANT:
            values = dict.fromkeys((*known_keys, *change.values))
            self._keys += len(values) - len(known_keys)
            self.changes[change.thing.key] = replace(change, values=values)


class _ChangedIds:
    """Ids of a tenant's changed entities, by the device, group or integration of their thing."""

    def __init__(self) -> None:
        self._all: set[int] = set()
        self._custom: set[int] = set()
        self._devices: dict[int, set[int]] = defaultdict(set)
        self._groups: dict[int, set[int]] = defaultdict(set)
        self._integrations: dict[str, set[int]] = defaultdict(set)

    def add(self, change: EntityChange, ids: Iterable[int]) -> None:
        """Add the ids of a change."""
        thing = change.thing
        self._all.update(ids)
        if thing.device:
            self._devices[thing.id].update(ids)
            if thing.group is not None:
                self._groups[thing.group].update(ids)
        elif thing.integration == SYSTEM_INTEGRATION:
            self._custom.update(ids)
        self._integrations[thing.integration].update(ids)

    def visible_ids(self, grants: Grants) -> set[int]:
        """Return the ids of entities that a user with these grants sees."""
        if grants.everything:
            return self._all
        granted = grants.resources
        visible_ids = self._custom | (self._all & granted.entities)
        for device in granted.devices.intersection(self._devices):
            visible_ids |= self._devices[device]
        for group in granted.groups.intersection(self._groups):
            visible_ids |= self._groups[group]
        for integration in granted.integrations.intersection(self._integrations):
            visible_ids |= self._integrations[integration]
        return visible_ids
