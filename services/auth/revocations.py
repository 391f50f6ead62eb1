"""Applies revocations to Redis and to open connections: at once, and once more by the sweep.

The intent is written in the transaction that makes it true in MongoDB. `apply` runs
before the caller is answered; the sweep repeats it `SETTLE` seconds later, and so makes
good what a crash left out, what Redis lost of its last second (`appendfsync everysec`), and
a log-in that was under way. While connections cannot be closed, it is tried again. Applying
twice changes nothing: a generation is reached only once, a device's copy is restored by its
next log-in, and connections of the current credential stay.

Revocations in MongoDB, from the transaction that decides them until they have settled.

`revocations`: `{_id, tenant, kind | null, subject, generation, user, at}`.
"""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from libs.common.errors import ThingwayError
from libs.common.identity import Kind
from libs.common.scheduling.turns import Steps, take_turns
from libs.common.store.mongo import Database, Document, Session
from services.auth.connections import UserConnections
from services.auth.tokens.device_keys import DeviceCopies
from services.auth.tokens.writer import TokenWriter

WORKERS, CHUNK = 4, 20
"""Tenants that have a turn at a time, and revocations of one."""


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

    async def add(self, tenant: str, revocation: Revocation, session: Session) -> None:
        """Write a revocation in the caller's transaction."""
        document = {
            "tenant": tenant,
            "kind": revocation.kind and revocation.kind.value,
            "subject": revocation.subject,
            "generation": revocation.generation,
            "user": revocation.user,
            "at": datetime.now(UTC),
        }
        await self._revocations.insert_one(document, session=session)

    async def tenants(self, seconds: float) -> list[str]:
        """Return the tenants of revocations of that age; "" for those of older versions."""
        tenants = await self._revocations.distinct("tenant", _older_than(seconds))
        return ["", *tenants]

    async def older_than(self, seconds: float, tenant: str) -> list[tuple[object, Revocation]]:
        """Return up to `CHUNK` revocations of that age, the oldest first, with their ids."""
        old = {"tenant": tenant or None, **_older_than(seconds)}
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

    async def remove(self, identity: object) -> None:
        """Remove a revocation that is true for good."""
        await self._revocations.delete_one({"_id": identity})


def _older_than(seconds: float) -> Document:
    return {"at": {"$lt": datetime.now(UTC) - timedelta(seconds=seconds)}}


log = logging.getLogger(__name__)

SETTLE = 6.0
"""Seconds after which a revocation is applied again: more than Redis may lose, and more than
NATS waits for the answer to a log-in (`auth_timeout`)."""
PAUSE = 2.0
"""Seconds between two sweeps."""


@dataclass(frozen=True)
class Revoker:
    """Makes revocations true."""

    tokens: TokenWriter
    copies: DeviceCopies
    connections: UserConnections

    async def apply(self, revocation: Revocation) -> None:
        """Apply one revocation; when this returns, the next look-up sees it.

        Connections that cannot be closed now are left to the sweep.
        """
        await self._forget(revocation)
        if revocation.user:
            try:
                await self.connections.close(revocation.user)
            except ThingwayError as error:
                log.info("connections of %s are closed later: %s", revocation.user, error)

    async def sweep(self, intents: RevocationStore) -> None:
        """Settle for ever, in turns of tenants; run by the lease holder."""
        tenants, settle = partial(intents.tenants, SETTLE), partial(self.settle, intents)
        await take_turns("revocations", WORKERS, tenants, settle, PAUSE)

    async def settle(self, intents: RevocationStore, tenant: str) -> Steps:
        """Apply once more the revocations of a tenant that are old enough, and remove them.

        Those whose connections cannot be closed come again later.
        """
        while due := await intents.older_than(SETTLE, tenant):
            for identity, revocation in due:
                await self._forget(revocation)
                try:
                    if revocation.user:
                        await self.connections.close(revocation.user, ask_servers=True)
                except ThingwayError as error:
                    log.warning("connections of %s are closed later: %s", revocation.user, error)
                    await intents.postpone(identity)
                else:
                    await intents.remove(identity)
            yield

    async def _forget(self, revocation: Revocation) -> None:
        """What Redis knows."""
        if revocation.kind is Kind.DEVICE:
            await self.copies.drop(revocation.subject)
        elif revocation.kind is not None:
            await self.tokens.revoke_subject(
                revocation.kind, revocation.subject, revocation.generation
            )
