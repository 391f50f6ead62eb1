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
from libs.common.bus.event_shortening import encode_shortened_event
from libs.common.bus.subjects import auth_event
from libs.common.clock import now_ms
from libs.common.contracts.events import AccountChanged, Actor, ChangedObject
from libs.common.identity import Caller, Principal, PrincipalKind
from libs.common.identity.access import AccessVersions
from libs.common.store.mongo import Document, Mongo, Session
from services.auth.accounts.tenants import TenantStore
from services.auth.audit import AuditEntry, AuditStore, AuditTarget
from services.auth.revocations import Revocation, RevocationApplier, RevocationStore

R = TypeVar("R")

OPERATOR_NAME = "operator"
"""Name of the caller of operator commands."""


def build_operator_caller(tenant: str) -> Caller:
    """Return the platform operator as the caller, for commands without a token."""
    return Caller(
        Principal(kind=PrincipalKind.USER, tenant=tenant, subject="0", name=OPERATOR_NAME)
    )


@dataclass
class ChangeTransaction:
    """An account change in its transaction: its audit entries and revocations.

    They are stored after the callback of `ChangeRunner.run` returns.
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
        target: AuditTarget,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
    ) -> None:
        """Add an audit entry, which is also published as an event."""
        self.entries.append(AuditEntry(action, target, before, after))

    def revoke_tokens(
        self, kind: PrincipalKind, subject: str, generation: int, user: str = ""
    ) -> None:
        """Revoke all tokens of a subject whose generation is below `generation`.

        With `user`, also close that NATS user's connections whose credential is no longer valid.
        """
        self.revocations.append(Revocation(kind, subject, generation, user))

    def close_connections(self, user: str) -> None:
        """Close a NATS user's connections whose credential is no longer valid."""
        self.revocations.append(Revocation(None, user, user=user))

    def record_access_change(
        self,
        action: str,
        target: AuditTarget,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
    ) -> None:
        """Add an audit entry for a change that may affect users' permissions."""
        self.record(action, target, before, after)
        self.mark_access_changed()

    def mark_access_changed(self) -> None:
        """Make the next request of every user of the tenant reload its permissions."""
        self.access_changed = True


@dataclass(frozen=True)
class ChangeRunner:
    """Runs account changes, each in one transaction with its audit entries and events."""

    mongo: Mongo
    audit: AuditStore
    outbox: Outbox
    revocations: RevocationStore
    revoker: RevocationApplier
    tenants: TenantStore
    versions: AccessVersions

    async def run(self, caller: Caller, write: Callable[[ChangeTransaction], Awaitable[R]]) -> R:
        """Run `write(change)` in the caller's tenant; repeat it after a conflict.

        An exception of `write` aborts the transaction.
        """

        async def write_change(
            session: Session,
        ) -> tuple[R, ChangeTransaction, int, list[Document]]:
            change = ChangeTransaction(
                session, partial(self.tenants.require_below_limit, caller.tenant, session)
            )
            result = await write(change)
            for revocation in change.revocations:
                await self.revocations.add(caller.tenant, revocation, session)
            bumps = change.access_changed
            version = (
                await self.tenants.raise_access_version(caller.tenant, session) if bumps else 0
            )
            return result, change, version, await self._store_entries(caller, change)

        result, change, version, outgoing = await self.mongo.transaction(write_change)
        for revocation in change.revocations:
            await self.revoker.apply(revocation)
        if version:
            await self.versions.raise_to(caller.tenant, version)
        await self.outbox.publish_stored(outgoing)
        return result

    async def record(
        self,
        caller: Caller,
        action: str,
        target: AuditTarget,
        after: dict[str, Any] | None = None,
    ) -> None:
        """Add one entry to the audit log."""

        async def record_entry(change: ChangeTransaction) -> None:
            change.record(action, target, after=after)

        await self.run(caller, record_entry)

    async def _store_entries(self, caller: Caller, change: ChangeTransaction) -> list[Document]:
        events = [_build_event(caller, entry) for entry in change.entries]
        await self.audit.add_events(events, change.session)
        entries = [
            OutboxEntry(
                auth_event(event.tenant, f"{event.object.type}.{event.action}"),
                encode_shortened_event(event),
            )
            for event in events
        ]
        return await self.outbox.store_entries(entries, change.session)


def _build_event(caller: Caller, entry: AuditEntry) -> AccountChanged:
    principal = caller.principal
    return AccountChanged(
        event_id=uuid4().hex,
        created_at=now_ms(),
        tenant=principal.tenant,
        actor=Actor(principal.kind.value, principal.subject, principal.name),
        action=entry.action,
        object=ChangedObject(entry.target.type, entry.target.id, entry.target.name),
        address=caller.address,
        request_id=caller.request_id,
        before=entry.before,
        after=entry.after,
    )
