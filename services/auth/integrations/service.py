"""Makes, lists and ends the logins of external integrations, for the operator."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from libs.common.contracts.auth import IntegrationSecret
from libs.common.contracts.integrations import BUILT_IN, login_of
from libs.common.errors import Conflict, NotFound
from libs.common.identity import Caller
from services.auth.audit.schemas import Deed, Subject
from services.auth.changes import Change
from services.auth.integrations.schemas import StoredLogin
from services.auth.secret_hash import new_secret, secret_hash

R = TypeVar("R")


class Changes(Protocol):
    """Runs changes."""

    async def run(self, caller: Caller, work: Callable[[Change], Awaitable[R]]) -> R:
        """Run `work` as one transaction in the caller's tenant."""


class Store(Protocol):
    """Where logins are kept."""

    async def add(self, login: StoredLogin, change: Change) -> None:
        """Add a login; raise `Conflict` when the integration has one."""

    async def all(self) -> Sequence[StoredLogin]:
        """All logins by integration."""

    async def set_secret(self, integration: str, secret_hash: str, change: Change) -> bool:
        """Set another secret; tell whether there is such a login."""

    async def remove(self, integration: str, change: Change) -> bool:
        """Remove a login; tell whether there was one."""


class IntegrationLogins:
    """The operations on logins; an integration is one for all tenants."""

    def __init__(self, store: Store, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    async def create(self, caller: Caller, integration: str) -> IntegrationSecret:
        """Make a login; the secret is shown once. Raises `Conflict`."""
        if integration in BUILT_IN:
            raise Conflict(f"integration {integration} is built in", field="integration")
        secret = new_secret()
        login = StoredLogin(
            integration=integration,
            secret_hash=secret_hash(secret),
            created_at=datetime.now(UTC),
        )

        async def work(change: Change) -> None:
            await self._store.add(login, change)
            change.record(Deed(action="created", subject=_subject(integration)))

        await self._changes.run(caller, work)
        return IntegrationSecret(integration, login_of(integration), secret)

    async def all(self) -> Sequence[StoredLogin]:
        """All logins by integration."""
        return await self._store.all()

    async def rotate(self, caller: Caller, integration: str) -> IntegrationSecret:
        """Make a new secret; the old one is dead and its connections end. Raises `NotFound`."""
        secret = new_secret()

        async def work(change: Change) -> None:
            if not await self._store.set_secret(integration, secret_hash(secret), change):
                raise _unknown(integration)
            change.record(Deed(action="rotated", subject=_subject(integration)))
            change.disconnect(login_of(integration))

        await self._changes.run(caller, work)
        return IntegrationSecret(integration, login_of(integration), secret)

    async def delete(self, caller: Caller, integration: str) -> None:
        """End a login and its connections. Raises `NotFound`."""

        async def work(change: Change) -> None:
            if not await self._store.remove(integration, change):
                raise _unknown(integration)
            change.record(Deed(action="deleted", subject=_subject(integration)))
            change.disconnect(login_of(integration))

        await self._changes.run(caller, work)


def _subject(integration: str) -> Subject:
    return Subject("integration_login", integration, integration)


def _unknown(integration: str) -> NotFound:
    return NotFound(f"integration {integration} has no login", field="integration")
