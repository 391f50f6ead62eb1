"""Account changes: data, audit entry, event and revocations commit together.

A change runs as one MongoDB transaction, which also writes the audit entry, the outbox entry, the
pending revocations and the tenant's new access version. Before the caller gets a response, tokens
are revoked and the version is raised in Redis, so that the next request sees the change. The sweeps
repeat steps that a crash interrupted.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from libs.common.bus import Outbox, OutboxEntry
from libs.common.bus.fitting import encode_shortened_event
from libs.common.bus.subjects import auth_event
from libs.common.clock import now_ms
from libs.common.contracts.events import AccountChanged, Actor, ChangedObject
from libs.common.identity import Caller, Kind, Principal
from libs.common.identity.access import AccessVersions
from libs.common.store.mongo import Document, Mongo, Session
from services.auth.accounts.tenants import TenantStore
from services.auth.audit import AuditEntry, AuditStore, Subject
from services.auth.revocations import Revocation, RevocationStore, Revoker

R = TypeVar("R")

OPERATOR = "operator"
"""Name of the caller of operator commands."""


def operator(tenant: str) -> Caller:
    """Return the platform operator as the caller, for commands without a token."""
    return Caller(Principal(kind=Kind.USER, tenant=tenant, subject="0", name=OPERATOR))


@dataclass
class Change:
    """A transaction in progress.

    It writes its entries and revocations after the callback returns.
    """

    session: Session
    reserve: Callable[[str], Awaitable[None]]
    """Raises `TooManyRequests` if the tenant has reached the named limit."""
    entries: list[AuditEntry] = field(default_factory=list)
    revocations: list[Revocation] = field(default_factory=list)
    access_changed: bool = False

    def record(
        self,
        action: str,
        subject: Subject,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
    ) -> None:
        """Add an entry to the audit log, which is also published as an event."""
        self.entries.append(AuditEntry(action, subject, before, after))

    def revoke(self, kind: Kind, subject: str, generation: int, user: str = "") -> None:
        """Revoke all tokens of a subject older than `generation`.

        With `user`, also close the connections of that NATS user made with an earlier credential.
        """
        self.revocations.append(Revocation(kind, subject, generation, user))

    def disconnect(self, user: str) -> None:
        """Close a NATS user's connections made with an earlier credential."""
        self.revocations.append(Revocation(None, user, user=user))

    def record_access(
        self,
        action: str,
        subject: Subject,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
    ) -> None:
        """Add an audit entry for a change that may affect users' permissions."""
        self.record(action, subject, before, after)
        self.mark_access_changed()

    def mark_access_changed(self) -> None:
        """Make the next request of every user of the tenant reload its permissions."""
        self.access_changed = True


@dataclass(frozen=True)
class Changes:
    """Runs account changes."""

    mongo: Mongo
    audit: AuditStore
    outbox: Outbox
    revocations: RevocationStore
    revoker: Revoker
    tenants: TenantStore
    versions: AccessVersions

    async def run(self, caller: Caller, write: Callable[[Change], Awaitable[R]]) -> R:
        """Run `write(change)` in the caller's tenant; repeat it after a conflict.

        An exception of `write` aborts the transaction.
        """

        async def write_change(session: Session) -> tuple[R, Change, int, list[Document]]:
            change = Change(session, partial(self.tenants.reserve, caller.tenant, session))
            result = await write(change)
            for revocation in change.revocations:
                await self.revocations.add(caller.tenant, revocation, session)
            bumps = change.access_changed
            version = await self.tenants.raise_version(caller.tenant, session) if bumps else 0
            return result, change, version, await self._record(caller, change)

        result, change, version, outgoing = await self.mongo.transaction(write_change)
        for revocation in change.revocations:
            await self.revoker.apply(revocation)
        if version:
            await self.versions.raise_to(caller.tenant, version)
        await self.outbox.publish_stored(outgoing)
        return result

    async def record(
        self, caller: Caller, action: str, subject: Subject, after: dict[str, Any] | None = None
    ) -> None:
        """Add one entry to the audit log."""

        async def record_entry(change: Change) -> None:
            change.record(action, subject, after=after)

        await self.run(caller, record_entry)

    async def _record(self, caller: Caller, change: Change) -> list[Document]:
        events = [_event(caller, entry) for entry in change.entries]
        await self.audit.add(events, change.session)
        entries = [
            OutboxEntry(
                auth_event(event.tenant, f"{event.object.type}.{event.action}"),
                encode_shortened_event(event),
            )
            for event in events
        ]
        return await self.outbox.add(entries, change.session)


def _event(caller: Caller, entry: AuditEntry) -> AccountChanged:
    principal = caller.principal
    return AccountChanged(
        event_id=uuid4().hex,
        created_at=now_ms(),
        tenant=principal.tenant,
        actor=Actor(principal.kind.value, principal.subject, principal.name),
        action=entry.action,
        object=ChangedObject(entry.subject.type, entry.subject.id, entry.subject.name),
        address=caller.address,
        request_id=caller.request_id,
        before=entry.before,
        after=entry.after,
    )
