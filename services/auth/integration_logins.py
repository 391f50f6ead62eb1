"""Makes, lists and ends the logins of external integrations, for the operator.

What is done is kept in the audit log of the default tenant.

Logins of integrations in MongoDB: `{_id: integration, secretHash, createdAt}`.

An integration is one for all tenants, and so is its login.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from libs.common.bus import RpcServer
from libs.common.clock import to_ms
from libs.common.contracts.auth import (
    Done,
    IntegrationLogin,
    IntegrationLogins,
    IntegrationRef,
    IntegrationSecret,
    ListIntegrationLogins,
)
from libs.common.contracts.integrations import BUILT_IN, login_of
from libs.common.errors import Conflict, NotFound
from libs.common.store.mongo import Database, DuplicateKey, Session
from services.auth.accounts.tenants import DEFAULT_TENANT
from services.auth.audit import Subject
from services.auth.changes import Change, Changes, operator
from services.auth.logins import new_secret, secret_hash


class IntegrationLoginStore:
    """The collection `integration_logins`."""

    def __init__(self, database: Database) -> None:
        self._logins = database["integration_logins"]

    async def add(self, integration: str, secret_hash: str, session: Session) -> None:
        """Add a login; raise `Conflict` when the integration has one."""
        now = datetime.now(UTC)
        document = {"_id": integration, "secretHash": secret_hash, "createdAt": now}
        try:
            await self._logins.insert_one(document, session=session)
        except DuplicateKey as error:
            raise Conflict(
                f"integration {integration} has a login already", field="integration"
            ) from error

    async def all(self) -> list[IntegrationLogin]:
        """All logins by integration."""
        return [
            IntegrationLogin(found["_id"], login_of(found["_id"]), to_ms(found["createdAt"]))
            async for found in self._logins.find().sort("_id", 1)
        ]

    async def secret_hash(self, integration: str) -> str | None:
        """The hash of an integration's secret; None without a login."""
        found = await self._logins.find_one({"_id": integration})
        return None if found is None else str(found["secretHash"])

    async def set_secret(self, integration: str, secret_hash: str, session: Session) -> bool:
        """Set another secret; tell whether there is such a login."""
        done = await self._logins.update_one(
            {"_id": integration}, {"$set": {"secretHash": secret_hash}}, session=session
        )
        return bool(done.matched_count)

    async def remove(self, integration: str, session: Session) -> bool:
        """Remove a login; tell whether there was one."""
        done = await self._logins.delete_one({"_id": integration}, session=session)
        return bool(done.deleted_count)


@dataclass(frozen=True)
class IntegrationLoginService:
    """The operations on logins."""

    store: IntegrationLoginStore
    changes: Changes

    async def create(self, wanted: IntegrationRef) -> IntegrationSecret:
        """Make a login; the secret is shown once. Raises `Conflict`."""
        integration, secret = wanted.integration, new_secret()
        if integration in BUILT_IN:
            raise Conflict(f"integration {integration} is built in", field="integration")

        async def insert_login(change: Change) -> None:
            await self.store.add(integration, secret_hash(secret), change.session)
            change.record("created", _subject(integration))

        await self.changes.run(operator(DEFAULT_TENANT), insert_login)
        return IntegrationSecret(integration, login_of(integration), secret)

    async def all(self, _: ListIntegrationLogins) -> IntegrationLogins:
        """All logins by integration."""
        return IntegrationLogins(await self.store.all())

    async def rotate(self, wanted: IntegrationRef) -> IntegrationSecret:
        """Make a new secret; the old one is dead and its connections end. Raises `NotFound`."""
        integration, secret = wanted.integration, new_secret()

        async def replace_secret(change: Change) -> None:
            if not await self.store.set_secret(integration, secret_hash(secret), change.session):
                raise _unknown(integration)
            change.record("rotated", _subject(integration))
            change.disconnect(login_of(integration))

        await self.changes.run(operator(DEFAULT_TENANT), replace_secret)
        return IntegrationSecret(integration, login_of(integration), secret)

    async def delete(self, wanted: IntegrationRef) -> Done:
        """End a login and its connections. Raises `NotFound`."""
        integration = wanted.integration

        async def delete_login(change: Change) -> None:
            if not await self.store.remove(integration, change.session):
                raise _unknown(integration)
            change.record("deleted", _subject(integration))
            change.disconnect(login_of(integration))

        await self.changes.run(operator(DEFAULT_TENANT), delete_login)
        return Done()


def _subject(integration: str) -> Subject:
    return Subject("integration_login", integration, integration)


def _unknown(integration: str) -> NotFound:
    return NotFound(f"integration {integration} has no login", field="integration")


def offer_integration_logins(rpc: RpcServer, service: IntegrationLoginService) -> None:
    """Offer the operations on logins."""
    rpc.offer("create_integration_login", IntegrationRef, service.create)
    rpc.offer("list_integration_logins", ListIntegrationLogins, service.all)
    rpc.offer("rotate_integration_secret", IntegrationRef, service.rotate)
    rpc.offer("delete_integration_login", IntegrationRef, service.delete)
