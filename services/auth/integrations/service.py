"""Makes, lists and ends the logins of external integrations, for the operator.

What is done is kept in the audit log of the default tenant.
"""

from libs.common.contracts.auth import (
    Done,
    IntegrationLogins,
    IntegrationRef,
    IntegrationSecret,
    ListIntegrationLogins,
)
from libs.common.contracts.integrations import BUILT_IN, login_of
from libs.common.errors import Conflict, NotFound
from services.auth.accounts.tenants import DEFAULT_TENANT
from services.auth.audit.schemas import Deed, Subject
from services.auth.changes import Change, Changes, operator
from services.auth.integrations.store import IntegrationLoginStore
from services.auth.secret_hash import new_secret, secret_hash


class IntegrationLoginService:
    """The operations on logins."""

    def __init__(self, store: IntegrationLoginStore, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    async def create(self, wanted: IntegrationRef) -> IntegrationSecret:
        """Make a login; the secret is shown once. Raises `Conflict`."""
        integration, secret = wanted.integration, new_secret()
        if integration in BUILT_IN:
            raise Conflict(f"integration {integration} is built in", field="integration")

        async def work(change: Change) -> None:
            await self._store.add(integration, secret_hash(secret), change.session)
            change.record(_deed("created", integration))

        await self._changes.run(operator(DEFAULT_TENANT), work)
        return IntegrationSecret(integration, login_of(integration), secret)

    async def all(self, _: ListIntegrationLogins) -> IntegrationLogins:
        """All logins by integration."""
        return IntegrationLogins(await self._store.all())

    async def rotate(self, wanted: IntegrationRef) -> IntegrationSecret:
        """Make a new secret; the old one is dead and its connections end. Raises `NotFound`."""
        integration, secret = wanted.integration, new_secret()

        async def work(change: Change) -> None:
            if not await self._store.set_secret(integration, secret_hash(secret), change.session):
                raise _unknown(integration)
            change.record(_deed("rotated", integration))
            change.disconnect(login_of(integration))

        await self._changes.run(operator(DEFAULT_TENANT), work)
        return IntegrationSecret(integration, login_of(integration), secret)

    async def delete(self, wanted: IntegrationRef) -> Done:
        """End a login and its connections. Raises `NotFound`."""
        integration = wanted.integration

        async def work(change: Change) -> None:
            if not await self._store.remove(integration, change.session):
                raise _unknown(integration)
            change.record(_deed("deleted", integration))
            change.disconnect(login_of(integration))

        await self._changes.run(operator(DEFAULT_TENANT), work)
        return Done()


def _deed(action: str, integration: str) -> Deed:
    subject = Subject("integration_login", integration, integration)
    return Deed(action=action, subject=subject)


def _unknown(integration: str) -> NotFound:
    return NotFound(f"integration {integration} has no login", field="integration")
