"""Applies revocations to Redis and to open connections: at once, and once more by the sweep.

The intent is written in the transaction that makes it true in MongoDB. `apply` runs
before the caller is answered; the sweep repeats it `SETTLE` seconds later, and so makes
good what a crash left out, what Redis lost of its last second (`appendfsync everysec`), and
a log-in that was under way. While connections cannot be closed, it is tried again. Applying
twice changes nothing: a generation is reached only once, a device's copy is restored by its
next log-in, and connections of the current credential stay.

Revocations in MongoDB, from the transaction that decides them until they have settled.

`revocations`: `{_id, kind | null, subject, generation, user, at}`.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from libs.common.errors import ThingwayError
from libs.common.identity import Kind
from libs.common.store.mongo import Database, Session
from services.auth.connections.service import UserConnections
from services.auth.tokens.device_keys import DeviceCopies
from services.auth.tokens.writer import TokenWriter

CHUNK = 500


@dataclass(frozen=True, slots=True)
class Revocation:
    """Everything older than `generation` of an application or user, or the key of a device."""

    kind: Kind | None
    """None: there is nothing but connections."""
    subject: str
    generation: int = 0
    user: str = ""
    """The user of the bus whose connections of an earlier credential end; empty: nobody's."""


class RevocationStore:
    """The collection `revocations`."""

    def __init__(self, database: Database) -> None:
        self._revocations = database["revocations"]

    async def add(self, revocation: Revocation, session: Session) -> None:
        """Write a revocation in the caller's transaction."""
        document = {
            "kind": revocation.kind and revocation.kind.value,
            "subject": revocation.subject,
            "generation": revocation.generation,
            "user": revocation.user,
            "at": datetime.now(UTC),
        }
        await self._revocations.insert_one(document, session=session)

    async def older_than(self, seconds: float) -> list[tuple[object, Revocation]]:
        """Up to `CHUNK` revocations of that age, the oldest first, with their ids."""
        old = {"at": {"$lt": datetime.now(UTC) - timedelta(seconds=seconds)}}
        documents = await self._revocations.find(old).sort("at", 1).to_list(CHUNK)
        return [
            (
                document["_id"],
                Revocation(
                    document["kind"] and Kind(document["kind"]),
                    document["subject"],
                    document["generation"],
                    document.get("user", ""),
                ),
            )
            for document in documents
        ]

    async def postpone(self, identity: object) -> None:
        """Let a revocation be as if it were written now."""
        await self._revocations.update_one({"_id": identity}, {"$set": {"at": datetime.now(UTC)}})

    async def remove(self, ids: Sequence[object]) -> None:
        """Remove revocations that are true for good."""
        if ids:
            await self._revocations.delete_many({"_id": {"$in": list(ids)}})


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
