"""Subscriptions of sockets, and checks of their tokens and grants.

Most subscriptions need no request to `device`, because an event contains the ids for checks of
device grants. `device` is called only for ids, and for keys of users with grants of entities.
Twice a second, the tokens of all sockets and the access versions of their tenants are read from
Redis. This detects every way in which a token can end, without notifications.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from libs.common.contracts.entities import MOST
from libs.common.device_client import DeviceClient
from libs.common.errors import ThingwayError
from libs.common.http.ids import find_id
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from libs.common.jobs import NamedTasks
from libs.common.scheduling.turns import repeat
from services.management.live.access import Admission, Credentials, UserAccess
from services.management.live.frames import Pattern
from services.management.live.hub import Hub
from services.management.live.sockets import POLICY, Turns
from services.management.live.subscriber import Listener, Subscriber

log = logging.getLogger(__name__)

EVERY = 0.4
"""Seconds between two checks: sockets of a revoked token are closed within a second."""
CHUNK = 2000
ENDED = "the token is no longer valid"


class Subscriptions:
    """Manages the subscriptions of sockets."""

    def __init__(self, hub: Hub, devices: DeviceClient, admission: Admission, turns: Turns) -> None:
        self._hub = hub
        self._devices = devices
        self._admission = admission
        self.turns = turns

    async def subscribe(self, subscriber: Subscriber, wanted: frozenset[str]) -> None:
        """Replace the subscription of a socket; keys need not exist.

        Raises `TooManyRequests`, and errors of `device` if it is needed.
        """
        self._admission.count_keys(subscriber, len(wanted))
        ids = [number for key in wanted if (number := find_id(key))]
        keys = frozenset(key for key in wanted if "." in key)
        by_key = {}
        if ids:
            found = await self._devices.resolve(subscriber.principal.tenant, ids=ids[:MOST])
            by_key = {entity.key: str(entity.id) for entity in found}
        async with self.turns.step(subscriber.principal.tenant):
            self._hub.subscribe(subscriber, keys, by_key)
        await self.find_granted_keys(subscriber)

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a socket."""
        self._hub.leave(subscriber)
        self._admission.count_keys(subscriber, 0)

    async def follow(self, subscriber: Subscriber, pattern: Pattern | None) -> None:
        """Replace the pattern that a socket follows; raise as `subscribe` does."""
        self._hub.follow(subscriber, pattern)
        await self.find_granted_keys(subscriber)

    async def find_granted_keys(self, subscriber: Subscriber) -> None:
        """Update the keys that are granted directly; with a pattern, of all granted entities."""
        granted = subscriber.grants.resources.entities
        subscriber.granted_keys = frozenset()
        if subscriber.grants.everything or not granted:
            return
        tenant, keys = subscriber.principal.tenant, list(subscriber.keys)
        if subscriber.pattern is not None:
            ids = sorted(granted)
            answers = [
                await self._devices.resolve(tenant, ids=ids[start : start + MOST])
                for start in range(0, len(ids), MOST)
            ]
            subscriber.granted_keys = frozenset(one.key for found in answers for one in found)
        elif keys:
            found = await self._devices.resolve(tenant, keys=keys[:MOST])
            subscriber.granted_keys = frozenset(
                entity.key for entity in found if entity.id in granted
            )


@dataclass(frozen=True)
class Watch:
    """Checks the sockets of a hub."""

    hub: Hub
    tokens: Credentials
    user_access: UserAccess
    subscriptions: Subscriptions
    refreshing: NamedTasks = field(default_factory=NamedTasks)
    """A job for each tenant whose grants have changed."""

    async def run(self) -> None:
        """Check for ever; without Redis or `auth`, the last known state remains valid."""
        try:
            await repeat(self.look, EVERY, "sockets could not be checked")
        finally:
            await self.refreshing.stop()

    async def look(self) -> None:
        """Check all sockets."""
        listeners = list(self.hub.listeners)
        for start in range(0, len(listeners), CHUNK):
            chunk = listeners[start : start + CHUNK]
            valid = await self.tokens.valid([one.credential for one in chunk])
            for subscriber, is_valid in zip(chunk, valid, strict=True):
                if not is_valid:
                    subscriber.close(POLICY, ENDED)
        await self._look_at_versions()

    async def _look_at_versions(self) -> None:
        by_tenant: dict[str, list[Listener]] = defaultdict(list)
        for subscriber in self.hub.listeners:
            by_tenant[subscriber.principal.tenant].append(subscriber)
        tenants = list(by_tenant)
        versions = await self.tokens.versions(tenants) if tenants else ()
        for tenant, version in zip(tenants, versions, strict=True):
            stale = [one for one in by_tenant[tenant] if one.principal.access < version]
            if stale:
                self.refreshing.start(tenant, partial(self._refresh, stale, version))

    async def _refresh(self, subscribers: Iterable[Listener], version: int) -> None:
        """Read permissions and grants again for sockets of a tenant, once per user."""
        known: dict[str, tuple[Principal, Grants] | None] = {}
        try:
            for subscriber in subscribers:
                user = subscriber.principal.subject
                if user not in known:
                    known[user] = await self.user_access.read(subscriber.principal, version)
                judged = known[user]
                if judged is None:
                    subscriber.close(POLICY, "the user does not exist or is disabled")
                else:
                    subscriber.principal, subscriber.grants = judged
                    if isinstance(subscriber, Subscriber):
                        await self.subscriptions.find_granted_keys(subscriber)
        except ThingwayError as error:
            log.warning("sockets could not be checked: %s", error)
