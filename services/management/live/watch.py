"""Ends sockets whose token is no longer valid, and filters anew when grants change.

Twice a second the tokens of all sockets and the access versions of their tenants are read
from Redis. That notices every way in which a token can end, and needs nothing to be told.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice

import msgspec

from libs.common.bus import RpcClient
from libs.common.contracts.access import ACCESS, Access, UserRef
from libs.common.errors import ThingwayError, Unauthenticated
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants
from services.management.live.hub import Hub
from services.management.live.service import Subscriptions
from services.management.live.store import TokenStates
from services.management.live.subscriber import Subscriber

log = logging.getLogger(__name__)

EVERY = 0.4
"""Seconds between looks: a revoked token closes its sockets within a second."""
CHUNK = 2000
POLICY = 1008
"""Close code "policy violation" (RFC 6455, 7.4.1)."""


class Watch:
    """Looks after the sockets of a hub."""

    def __init__(
        self,
        hub: Hub,
        tokens: TokenStates,
        rpc: RpcClient,
        grants: GrantReader,
        subscriptions: Subscriptions,
    ) -> None:
        self._hub = hub
        self._tokens = tokens
        self._rpc = rpc
        self._grants = grants
        self._subscriptions = subscriptions

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
                await self._subscriptions.filter_anew(subscriber)

    async def _judge(self, principal: Principal, version: int) -> tuple[Principal, Grants] | None:
        """What a user may do and see as of now; None when it is gone."""
        user = UserRef(principal.tenant, principal.user_id)
        try:
            access = await self._rpc.call(ACCESS, user, Access)
            known = msgspec.structs.replace(
                principal,
                functions=access.functions,
                super_admin=access.super_admin,
                access=max(access.version, version),
            )
            return known, await self._grants.of(known)
        except Unauthenticated:
            return None


def _chunks(subscribers: list[Subscriber]) -> Iterable[list[Subscriber]]:
    rest = iter(subscribers)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
