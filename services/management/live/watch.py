"""Ends sockets whose token is no longer valid, and filters anew when grants change.

Twice a second the tokens of all sockets and the access versions of their tenants are read
from Redis. That notices every way in which a token can end, and needs nothing to be told.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

import msgspec

from libs.common.errors import ThingwayError, Unauthenticated
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from services.management.live.hub import Hub
from services.management.live.subscriber import Subscriber

log = logging.getLogger(__name__)

EVERY = 0.4
"""Seconds between looks: a revoked token closes its sockets within a second."""
CHUNK = 2000
POLICY = 1008
"""Close code "policy violation" (RFC 6455, 7.4.1)."""


class Tokens(Protocol):
    """The token state, as far as it is needed here; raises `ThingwayError` while it is away."""

    async def valid(self, hashes: Sequence[str]) -> Sequence[bool]:
        """Tell of each token whether it is valid."""

    async def versions(self, tenants: Sequence[str]) -> Sequence[int]:
        """The access version of each tenant, 0 where there is none."""


class Rights(Protocol):
    """What users may see, as of now."""

    async def refreshed(self, principal: Principal) -> tuple[Principal, Grants]:
        """What a user may do and see at `principal.access`; `Unauthenticated` when it is gone."""


class SubscribedKeys(Protocol):
    """Works subscriptions out."""

    async def filter_anew(self, subscriber: Subscriber) -> None:
        """Find again which of its keys are granted by themselves."""


class Watch:
    """Looks after the sockets of a hub."""

    def __init__(self, hub: Hub, tokens: Tokens, rights: Rights, keys: SubscribedKeys) -> None:
        self._hub = hub
        self._tokens = tokens
        self._rights = rights
        self._keys = keys

    async def run(self) -> None:
        """Look for ever; without Redis or `auth` what was known holds."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.look()
            except ThingwayError as error:
                log.warning("sockets could not be checked: %s", error)

    async def look(self) -> None:
        """One look at all sockets."""
        for chunk in _chunks(list(self._hub.subscribers)):
            for subscriber, valid in zip(
                chunk, await self._tokens.valid([one.token_hash for one in chunk]), strict=True
            ):
                if not valid:
                    subscriber.close(POLICY, "the token is no longer valid")
        await self._look_at_versions()

    async def _look_at_versions(self) -> None:
        by_tenant: dict[str, list[Subscriber]] = defaultdict(list)
        for subscriber in self._hub.subscribers:
            by_tenant[subscriber.principal.tenant].append(subscriber)
        tenants = list(by_tenant)
        versions = await self._tokens.versions(tenants) if tenants else ()
        for tenant, version in zip(tenants, versions, strict=True):
            stale = [one for one in by_tenant[tenant] if one.principal.access < version]
            if stale:
                await self._refresh(stale, version)

    async def _refresh(self, subscribers: Iterable[Subscriber], version: int) -> None:
        """Judge sockets anew, each user once."""
        known: dict[str, tuple[Principal, Grants] | None] = {}
        for subscriber in subscribers:
            user = subscriber.principal.subject
            if user not in known:
                known[user] = await self._judge(subscriber.principal, version)
            judged = known[user]
            if judged is None:
                subscriber.close(POLICY, "the user is gone")
            else:
                subscriber.principal, subscriber.grants = judged
                await self._keys.filter_anew(subscriber)

    async def _judge(self, principal: Principal, version: int) -> tuple[Principal, Grants] | None:
        wanted = msgspec.structs.replace(principal, access=version)
        try:
            return await self._rights.refreshed(wanted)
        except Unauthenticated:
            return None


def _chunks(subscribers: list[Subscriber]) -> Iterable[list[Subscriber]]:
    rest = iter(subscribers)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
