"""Revocations, applied to Redis and open connections at once and by a sweep.

The transaction that revokes credentials in MongoDB also stores the revocation. `apply` runs before
the caller gets a response. The sweep repeats it `REAPPLY_AFTER_SECONDS` later, which covers
crashes, the last second that Redis may lose (`appendfsync everysec`) and concurrent logins. It
retries while connections cannot be closed. Applying is idempotent: a generation is raised only
once, the next login restores a device's copy, and connections with current credentials stay open.

A document of `revocations` is `{_id, tenant, kind or null, subject, generation, user, at}`. It
exists until the sweep has applied it.
"""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from libs.common.errors import ThingwayError
from libs.common.identity import PrincipalKind
from libs.common.scheduling.turns import TenantSteps, take_turns
from libs.common.store.mongo import Database, Document, Session
from services.auth.connections import UserConnections
from services.auth.tokens.device_keys import DeviceKeyCopyStore
from services.auth.tokens.writer import TokenWriter

CONCURRENT_TENANTS, REVOCATIONS_PER_TURN = 4, 20
"""Concurrent tenants, and revocations per turn of a tenant."""


@dataclass(frozen=True, slots=True)
class Revocation:
    """A revocation of tokens, of a device's copy in Redis, or only of connections."""

    kind: PrincipalKind | None
    """Kind of the principal whose tokens or copy are revoked; None closes connections only."""
    subject: str
    generation: int = 0
    """The lowest generation of tokens that stay valid."""
    user: str = ""
    """NATS user whose connections with invalid credentials are closed; empty closes none."""


class RevocationStore:
    """The collection `revocations`."""

    def __init__(self, database: Database) -> None:
        self._revocations = database["revocations"]

    async def add(self, tenant: str, revocation: Revocation, session: Session) -> None:
        """Insert a revocation in the caller's transaction."""
        document = {
            "tenant": tenant,
            "kind": revocation.kind and revocation.kind.value,
            "subject": revocation.subject,
            "generation": revocation.generation,
            "user": revocation.user,
            "at": datetime.now(UTC),
        }
        await self._revocations.insert_one(document, session=session)

    async def list_tenants(self, min_age_seconds: float) -> list[str]:
        """Return tenants with revocations older than `min_age_seconds`.

        "" stands for revocations that earlier versions of the platform stored without a tenant.
        """
        stages = [{"$match": _min_age_query(min_age_seconds)}, {"$group": {"_id": "$tenant"}}]
        cursor = await self._revocations.aggregate(stages)
        return [document["_id"] or "" async for document in cursor]

    async def list_batch(
        self, min_age_seconds: float, tenant: str
    ) -> list[tuple[object, Revocation]]:
        """Return up to `REVOCATIONS_PER_TURN` revocations of a tenant, with their ids.

        They are older than `min_age_seconds`, the oldest first.
        """
        old = {"tenant": tenant or None, **_min_age_query(min_age_seconds)}
        documents = await self._revocations.find(old).sort("at", 1).to_list(REVOCATIONS_PER_TURN)
        return [
            (
                document["_id"],
                Revocation(
                    document["kind"] and PrincipalKind(document["kind"]),
                    document["subject"],
                    document["generation"],
                    document.get("user", ""),
                ),
            )
            for document in documents
        ]

    async def reset_age(self, identity: object) -> None:
        """Set the age of a revocation to 0, so that it is applied again later."""
        await self._revocations.update_one({"_id": identity}, {"$set": {"at": datetime.now(UTC)}})

    async def remove(self, identity: object) -> None:
        """Delete a revocation."""
        await self._revocations.delete_one({"_id": identity})


def _min_age_query(min_age_seconds: float) -> Document:
    return {"at": {"$lt": datetime.now(UTC) - timedelta(seconds=min_age_seconds)}}


log = logging.getLogger(__name__)

REAPPLY_AFTER_SECONDS = 6.0
"""Seconds after which a revocation is applied again: longer than the data that Redis may lose and
than NATS's timeout of a login (`auth_timeout`)."""
SWEEP_SECONDS = 2.0
"""Seconds between two sweeps."""


@dataclass(frozen=True)
class RevocationApplier:
    """Applies revocations to Redis and to open connections."""

    tokens: TokenWriter
    copies: DeviceKeyCopyStore
    connections: UserConnections

    async def apply(self, revocation: Revocation) -> None:
        """Apply a revocation; the next lookup sees it.

        The sweep closes connections that cannot be closed now.
        """
        await self._delete_from_redis(revocation)
        if revocation.user:
            try:
                await self.connections.close_revoked(revocation.user)
            except ThingwayError as error:
                log.info(
                    "connections of %s were not closed yet, retrying: %s", revocation.user, error
                )

    async def reapply_forever(self, store: RevocationStore) -> None:
        """Repeat revocations periodically, fairly by tenant; runs in the lease holder."""
        tenants, settle = (
            partial(store.list_tenants, REAPPLY_AFTER_SECONDS),
            partial(self.reapply_old, store),
        )
        await take_turns("revocations", CONCURRENT_TENANTS, tenants, settle, SWEEP_SECONDS)

    async def reapply_old(self, store: RevocationStore, tenant: str) -> TenantSteps:
        """Apply a tenant's old revocations again and delete them.

        Revocations whose connections cannot be closed are postponed.
        """
        while due := await store.list_batch(REAPPLY_AFTER_SECONDS, tenant):
            for identity, revocation in due:
                await self._delete_from_redis(revocation)
                try:
                    if revocation.user:
                        await self.connections.close_revoked(revocation.user, ask_servers=True)
                except ThingwayError as error:
                    log.warning(
                        "connections of %s were not closed, retrying: %s", revocation.user, error
                    )
                    await store.reset_age(identity)
                else:
                    await store.remove(identity)
            yield

    async def _delete_from_redis(self, revocation: Revocation) -> None:
        """Drop the device's copy or the subject's tokens in Redis."""
        if revocation.kind is PrincipalKind.DEVICE:
            await self.copies.delete(revocation.subject)
        elif revocation.kind is not None:
            await self.tokens.revoke_older_tokens(
                revocation.kind, revocation.subject, revocation.generation
            )
