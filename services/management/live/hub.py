"""The subscriptions of sockets, and the distribution of changes to them.

Sockets with the same subscription form an audience, for which a change is selected and encoded
once. Audiences are found by key, so that the cost depends on the keys of a change and not on the
number of sockets. Duplicate events are recognized by their id.

Most subscriptions need no request to `device`, because events contain the ids for checks of device
grants. `device` is called only for subscriptions by id, and for users with grants of single
entities.
Every `CHECK_SECONDS`, the tokens of all sockets and the access versions of their tenants are read
from Redis. This detects every way in which a token can end, without notifications.
"""

import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from libs.common.changes import ChangedThing, EntityChange
from libs.common.contracts.entities import MAX_RESOLVED_KEYS
from libs.common.device_client import DeviceClient
from libs.common.errors import ThingwayError
from libs.common.http.ids import try_read_id
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from libs.common.jobs import NamedTasks
from libs.common.lru_cache import LruCache
from libs.common.scheduling.turns import repeat
from services.management.live.access import AdmissionControl, CredentialReader, UserAccessReader
from services.management.live.frames import (
    ChangeFilter,
    EncodedChange,
    QueuedBytes,
    TimedValue,
    ValuesUpdate,
    keep_latest,
)
from services.management.live.mqtt_publisher import MqttPublisher
from services.management.live.sockets import POLICY, Pause, SocketTurns
from services.management.live.subscriber import Listener, Subscriber

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.4
"""Seconds between two checks: sockets of a revoked token are closed within a second."""
CREDENTIALS_PER_READ = 2000
"""Credentials per read from Redis."""
ENDED_ACCESS_REASON = "the token is no longer valid"
MAX_REMEMBERED_EVENT_IDS_PER_TENANT = 5_000
"""Event ids per tenant that are remembered to recognize duplicates."""
MAX_WAITING_BYTES_PER_TENANT = 16 * 1024**2
"""Bytes that wait for all sockets of a tenant. Beyond this size, each socket keeps one frame, and
the latest value of each key."""

K = TypeVar("K", bound=Hashable)
M = TypeVar("M")
V = TypeVar("V")
E = TypeVar("E")


class Audience:
    """The sockets of a tenant that subscribe to the same keys and ids."""

    def __init__(self, keys: frozenset[str], ids_by_key: Mapping[str, str]) -> None:
        """`ids_by_key` are the subscribed ids, by the key of the entity."""
        self.subscription = keys, frozenset(ids_by_key.items())
        self.keys = keys
        self.ids_by_key = ids_by_key
        self.entities = keys.union(ids_by_key) if ids_by_key else keys
        """Keys of all subscribed entities, also of those subscribed by id."""
        self.members: set[Subscriber] = set()

    def encode_update(self, values: Mapping[str, TimedValue]) -> ValuesUpdate:
        """Encode new values (by entity key) with the keys or ids that clients subscribed to."""
        if not self.ids_by_key:
            return ValuesUpdate.encode(values)
        subscribed_values = {key: value for key, value in values.items() if key in self.keys}
        ids = {
            self.ids_by_key[key]: value for key, value in values.items() if key in self.ids_by_key
        }
        return ValuesUpdate.encode(subscribed_values | ids)


class _TenantSockets:
    """The sockets of a tenant, by their subscriptions."""

    def __init__(self) -> None:
        self.number = 0
        self.queued = QueuedBytes(MAX_WAITING_BYTES_PER_TENANT)
        self.audiences: dict[Hashable, Audience] = {}
        self.by_key: dict[str, set[Audience]] = {}
        self.subscribers_by_filter: dict[ChangeFilter, set[Subscriber]] = {}
        self.recent_event_ids: LruCache[str, None] = LruCache(MAX_REMEMBERED_EVENT_IDS_PER_TENANT)


class Hub:
    """The sockets of this process; `mqtt_publisher` serves pages over MQTT."""

    def __init__(self, mqtt_publisher: MqttPublisher) -> None:
        self.mqtt_publisher = mqtt_publisher
        self.listeners: set[Listener] = set()
        self._tenants: defaultdict[str, _TenantSockets] = defaultdict(_TenantSockets)
        self._audience_of: dict[Subscriber, Audience] = {}

    def add(self, listener: Listener) -> None:
        """Add a socket without subscriptions."""
        sockets = self._tenants[listener.principal.tenant]
        sockets.number += 1
        listener.queued.total = sockets.queued
        self.listeners.add(listener)

    def remove(self, listener: Listener) -> None:
        """Remove a socket, and its waiting data."""
        if isinstance(listener, Subscriber):
            self.set_keys(listener, frozenset(), {})
            self.set_filter(listener, None)
        listener.stop()
        self.listeners.discard(listener)
        sockets = self._tenants[listener.principal.tenant]
        sockets.number -= 1
        if not sockets.number:
            del self._tenants[listener.principal.tenant]

    def list_tenants(self) -> frozenset[str]:
        """Return the tenants that have a socket."""
        return frozenset(self._tenants)

    def has_socket(self, tenant: str) -> bool:
        """Return whether a tenant has a socket."""
        return tenant in self._tenants

    def set_keys(
        self, subscriber: Subscriber, keys: frozenset[str], ids_by_key: dict[str, str]
    ) -> None:
        """Replace the subscribed keys of a socket, and its subscribed ids (by the entity's key)."""
        sockets = self._tenants[subscriber.principal.tenant]
        before = self._audience_of.pop(subscriber, None)
        if before is not None:
            before.members.discard(subscriber)
            if not before.members:
                del sockets.audiences[before.subscription]
                for key in before.entities:
                    _discard_member(sockets.by_key, key, before)
        subscriber.keys = frozenset()
        if keys or ids_by_key:  # audiences share the texts of keys
            audience = Audience(frozenset(map(sys.intern, keys)), ids_by_key)
            audience = sockets.audiences.setdefault(audience.subscription, audience)
            if not audience.members:
                for key in audience.entities:
                    sockets.by_key.setdefault(key, set()).add(audience)
            audience.members.add(subscriber)
            self._audience_of[subscriber] = audience
            subscriber.keys = audience.entities

    def set_filter(self, subscriber: Subscriber, change_filter: ChangeFilter | None) -> None:
        """Replace the filter of the changes that a socket gets; None ends this subscription."""
        subscribers_by_filter = self._tenants[subscriber.principal.tenant].subscribers_by_filter
        if subscriber.filter is not None:
            _discard_member(subscribers_by_filter, subscriber.filter, subscriber)
        subscriber.set_filter(change_filter)
        if change_filter is not None:
            subscribers_by_filter.setdefault(change_filter, set()).add(subscriber)

    async def push(self, changes: Sequence[EntityChange], pause: Pause) -> None:
        """Push changes of a tenant to sockets that subscribe to them and may see them.

        Sockets that subscribe to keys get one frame per thing, with the values that were measured
        last: a late report may arrive after a newer one. Duplicate events are ignored.
        """
        sockets = self._tenants.get(changes[0].tenant)
        if sockets is None:
            return
        latest: dict[str, tuple[ChangedThing, dict[str, TimedValue]]] = {}
        for change in changes:
            if change.event_id in sockets.recent_event_ids:
                continue
            sockets.recent_event_ids.put(change.event_id, None)
            self.mqtt_publisher.collect(change)
            _, values = latest.get(change.thing.key, (None, {}))
            latest[change.thing.key] = change.thing, values
            for key, raw in change.values.items():
                if key in sockets.by_key:
                    keep_latest(values, key, TimedValue(raw, change.ts))
            if sockets.subscribers_by_filter:
                await self._push_filtered(sockets, change, pause)
        for thing, values in latest.values():
            await self._push_values(sockets, thing, values, pause)

    async def _push_values(
        self,
        sockets: _TenantSockets,
        thing: ChangedThing,
        values: Mapping[str, TimedValue],
        pause: Pause,
    ) -> None:
        values_by_audience: dict[Audience, dict[str, TimedValue]] = defaultdict(dict)
        for key, value in values.items():
            for audience in sockets.by_key.get(key, ()):
                values_by_audience[audience][key] = value
            await pause()
        for audience, audience_values in values_by_audience.items():
            for member, update in _encode_for_members(
                audience.members, thing, audience_values, audience.encode_update
            ):
                member.push(update)
            await pause()

    async def _push_filtered(
        self, sockets: _TenantSockets, change: EntityChange, pause: Pause
    ) -> None:
        encode = partial(EncodedChange.encode, change)
        for change_filter, members in list(sockets.subscribers_by_filter.items()):
            for member, encoded in _encode_for_members(
                members, change.thing, change_filter.select_values(change), encode
            ):
                member.push_change(encoded)
            await pause()


def _discard_member(sets: dict[K, set[M]], key: K, member: M) -> None:
    """Remove a member from the set at a key, and the set when it is empty."""
    sets[key].discard(member)
    if not sets[key]:
        del sets[key]


def _encode_for_members(
    members: Iterable[Subscriber],
    thing: ChangedThing,
    values: Mapping[str, V],
    encode: Callable[[Mapping[str, V]], E],
) -> list[tuple[Subscriber, E]]:
    """Return the members that see any of the values, each with the encoded values it sees.

    Members that see the same values share one encoding.
    """
    encoded: dict[frozenset[str] | None, E | None] = {}
    encoded_members = []
    for member in members:
        visible_keys = None if member.sees_all_changes(thing) else member.granted_keys
        if visible_keys not in encoded:
            visible_values = values
            if visible_keys is not None:
                visible_values = {
                    key: value for key, value in values.items() if key in visible_keys
                }
            encoded[visible_keys] = encode(visible_values) if visible_values else None
        if (message := encoded[visible_keys]) is not None:
            encoded_members.append((member, message))
    return encoded_members


class Subscriptions:
    """Manages the subscriptions of sockets."""

    def __init__(
        self, hub: Hub, devices: DeviceClient, admission: AdmissionControl, turns: SocketTurns
    ) -> None:
        self._hub = hub
        self._devices = devices
        self._admission = admission
        self.turns = turns

    async def set_keys(self, subscriber: Subscriber, requested: frozenset[str]) -> None:
        """Replace the keys and ids that a socket subscribes to; they need not exist.

        Raises `TooManyRequests`, and errors of `device` if it is needed.
        """
        self._admission.set_key_count(subscriber, len(requested))
        ids = [number for key in requested if (number := try_read_id(key))]
        keys = frozenset(key for key in requested if "." in key)
        by_key = {}
        if ids:
            entities = await self._devices.resolve(
                subscriber.principal.tenant, ids=ids[:MAX_RESOLVED_KEYS]
            )
            by_key = {entity.key: str(entity.id) for entity in entities}
        async with self.turns.step(subscriber.principal.tenant):
            self._hub.set_keys(subscriber, keys, by_key)
        await self.update_granted_keys(subscriber)

    def remove_socket(self, subscriber: Subscriber) -> None:
        """Remove a socket."""
        self._hub.remove(subscriber)
        self._admission.set_key_count(subscriber, 0)

    async def set_filter(self, subscriber: Subscriber, change_filter: ChangeFilter | None) -> None:
        """Replace the filter of the changes that a socket gets; raise as `set_keys` does."""
        self._hub.set_filter(subscriber, change_filter)
        await self.update_granted_keys(subscriber)

    async def update_granted_keys(self, subscriber: Subscriber) -> None:
        """Update the keys of entities that have a grant of their own, not only of their thing.

        With a filter, read the keys of all these entities, else only of the subscribed ones.
        """
        granted = subscriber.grants.resources.entities
        subscriber.granted_keys = frozenset()
        if subscriber.grants.everything or not granted:
            return
        tenant, keys = subscriber.principal.tenant, list(subscriber.keys)
        if subscriber.filter is not None:
            ids = sorted(granted)
            answers = [
                await self._devices.resolve(tenant, ids=ids[start : start + MAX_RESOLVED_KEYS])
                for start in range(0, len(ids), MAX_RESOLVED_KEYS)
            ]
            subscriber.granted_keys = frozenset(
                entry.key for entities in answers for entry in entities
            )
        elif keys:
            entities = await self._devices.resolve(tenant, keys=keys[:MAX_RESOLVED_KEYS])
            subscriber.granted_keys = frozenset(
                entity.key for entity in entities if entity.id in granted
            )


@dataclass(frozen=True)
class SocketChecker:
    """Checks the sockets of a hub."""

    hub: Hub
    tokens: CredentialReader
    user_access: UserAccessReader
    subscriptions: Subscriptions
    refreshing: NamedTasks = field(default_factory=NamedTasks)
    """Tasks that reload permissions and grants, by tenant."""

    async def run(self) -> None:
        """Check until cancelled; without Redis or `auth`, the last known state remains valid."""
        try:
            await repeat(self.check_sockets, CHECK_SECONDS, "sockets could not be checked")
        finally:
            await self.refreshing.stop()

    async def check_sockets(self) -> None:
        """Close sockets with invalid credentials; reload changed permissions of the others."""
        listeners = list(self.hub.listeners)
        for start in range(0, len(listeners), CREDENTIALS_PER_READ):
            chunk = listeners[start : start + CREDENTIALS_PER_READ]
            valid = await self.tokens.are_valid([listener.credential for listener in chunk])
            for listener, is_valid in zip(chunk, valid, strict=True):
                if not is_valid:
                    listener.close(POLICY, ENDED_ACCESS_REASON)
        await self._reload_changed_access()

    async def _reload_changed_access(self) -> None:
        by_tenant: dict[str, list[Listener]] = defaultdict(list)
        for listener in self.hub.listeners:
            by_tenant[listener.principal.tenant].append(listener)
        tenants = list(by_tenant)
        versions = await self.tokens.read_access_versions(tenants) if tenants else ()
        for tenant, version in zip(tenants, versions, strict=True):
            stale = [
                listener for listener in by_tenant[tenant] if listener.principal.access < version
            ]
            if stale:
                self.refreshing.start(tenant, partial(self._reload_access, stale, version))

    async def _reload_access(self, listeners: Iterable[Listener], version: int) -> None:
        """Read permissions and grants again for sockets of a tenant, once per user."""
        access_by_user: dict[str, tuple[Principal, Grants] | None] = {}
        try:
            for listener in listeners:
                user = listener.principal.subject
                if user not in access_by_user:
                    access_by_user[user] = await self.user_access.read_user_and_grants(
                        listener.principal, version
                    )
                current = access_by_user[user]
                if current is None:
                    listener.close(POLICY, "the user does not exist or is disabled")
                else:
                    listener.principal, listener.grants = current
                    if isinstance(listener, Subscriber):
                        await self.subscriptions.update_granted_keys(listener)
        except ThingwayError as error:
            log.warning("permissions of users with open sockets could not be read again: %s", error)
