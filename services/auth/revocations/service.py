"""Applies revocations to Redis and to open connections: at once, and once more by the sweep.

The intent is written in the transaction that makes it true in MongoDB. `apply` runs
before the caller is answered; the sweep repeats it `SETTLE` seconds later, and so makes
good what a crash left out, what Redis lost of its last second (`appendfsync everysec`), and
a log-in that was under way. While connections cannot be closed, it is tried again. Applying
twice changes nothing: a generation is reached only once, a device's copy is restored by its
next log-in, and connections of the current credential stay.
"""

import asyncio
import logging

from libs.common.errors import ThingwayError
from libs.common.identity import Kind
from services.auth.connections.service import UserConnections
from services.auth.revocations.store import Revocation, RevocationStore
from services.auth.tokens.device_keys import DeviceCopies
from services.auth.tokens.writer import TokenWriter

log = logging.getLogger(__name__)

SETTLE = 6.0
"""Seconds after which a revocation is applied again: more than Redis may lose, and more than
NATS waits for the answer to a log-in (`auth_timeout`)."""
PAUSE = 2.0
"""Seconds between two sweeps."""


class Revoker:
    """Makes revocations true."""

    def __init__(
        self, tokens: TokenWriter, copies: DeviceCopies, connections: UserConnections
    ) -> None:
        self._tokens = tokens
        self._copies = copies
        self._connections = connections

    async def apply(self, revocation: Revocation) -> None:
        """Apply one revocation; when this returns, the next look-up sees it.

        Connections that cannot be closed now are left to the sweep.
        """
        await self._forget(revocation)
        if revocation.user:
            try:
                await self._connections.close(revocation.user)
            except ThingwayError as error:
                log.info("connections of %s are closed later: %s", revocation.user, error)

    async def settle(self, intents: RevocationStore) -> int:
        """Apply once more what is old enough, forget it, and return how many there were.

        The first whose connections cannot be closed ends it, and goes to the end of the queue.
        """
        due = await intents.older_than(SETTLE)
        for _, revocation in due:
            await self._forget(revocation)
        settled = []
        for identity, revocation in due:
            try:
                if revocation.user:
                    await self._connections.close(revocation.user, ask_servers=True)
            except ThingwayError as error:
                log.warning("connections of %s are still to be closed: %s", revocation.user, error)
                await intents.postpone(identity)
                break
            settled.append(identity)
        await intents.remove(settled)
        return len(settled)

    async def sweep(self, intents: RevocationStore) -> None:
        """Settle for ever; run by the lease holder."""
        while True:
            try:
                await self.settle(intents)
            except Exception:
                log.exception("revocations could not be settled; they are tried again")
            await asyncio.sleep(PAUSE)

    async def _forget(self, revocation: Revocation) -> None:
        """What Redis knows."""
        if revocation.kind is Kind.DEVICE:
            await self._copies.drop(revocation.subject)
        elif revocation.kind is not None:
            await self._tokens.revoke_subject(
                revocation.kind, revocation.subject, revocation.generation
            )
