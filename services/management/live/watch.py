"""Ends sockets whose token is no longer valid, and filters anew when grants change.

Twice a second the tokens of all sockets and the access versions of their tenants are read
from Redis. That notices every way in which a token can end, and needs nothing to be told.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from libs.common.errors import ThingwayError
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from libs.common.jobs import Beside
from libs.common.scheduling.turns import repeat
from services.management.live.hub import Hub
from services.management.live.service import Subscriptions
from services.management.live.store import Credentials, Judge
from services.management.live.subscriber import Listener, Subscriber

log = logging.getLogger(__name__)

EVERY = 0.4
"""Seconds between looks: a revoked token closes its sockets within a second."""
CHUNK = 2000
ENDED = "the token is no longer valid"
POLICY = 1008
"""Close code "policy violation" (RFC 6455, 7.4.1)."""


@dataclass(frozen=True)
class Watch:
    """Looks after the sockets of a hub."""

    hub: Hub
    tokens: Credentials
    judge: Judge
    subscriptions: Subscriptions
    refreshing: Beside = field(default_factory=Beside)
    """One job for each tenant whose grants have changed."""

    async def run(self) -> None:
        """Look for ever; without Redis or `auth` what was known holds."""
        try:
            await repeat(self.look, EVERY, "sockets could not be checked")
        finally:
            await self.refreshing.stop()

    async def look(self) -> None:
        """One look at all sockets."""
        for chunk in _chunks(list(self.hub.listeners)):
            for subscriber, valid in zip(
                chunk, await self.tokens.valid([one.credential for one in chunk]), strict=True
            ):
                if not valid:
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
                self.refreshing.begin(tenant, partial(self._refresh, stale, version))

    async def _refresh(self, subscribers: Iterable[Listener], version: int) -> None:
        """Judge sockets of a tenant anew, each user once; the next look finds what is left."""
        known: dict[str, tuple[Principal, Grants] | None] = {}
        try:
            for subscriber in subscribers:
                user = subscriber.principal.subject
                if user not in known:
                    known[user] = await self.judge.of(subscriber.principal, version)
                judged = known[user]
                if judged is None:
                    subscriber.close(POLICY, "the user is gone")
                else:
                    subscriber.principal, subscriber.grants = judged
                    if isinstance(subscriber, Subscriber):
                        await self.subscriptions.filter_anew(subscriber)
        except ThingwayError as error:
            log.warning("sockets could not be checked: %s", error)


def _chunks(subscribers: list[Listener]) -> Iterable[list[Listener]]:
    rest = iter(subscribers)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
