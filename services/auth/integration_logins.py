"""Logins of external integrations, which the operator creates, lists and deletes.

`integration_logins` in MongoDB: `{_id: integration, secretHash, createdAt}`. An integration and its
login serve all tenants. Changes are recorded in the audit log of the default tenant.
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
from libs.common.contracts.integrations import BUILT_IN_IDS, integration_user
from libs.common.errors import Conflict, NotFound
from libs.common.store.mongo import Database, Session, raise_on_duplicate
from services.auth.accounts.tenants import DEFAULT_TENANT
from services.auth.audit import AuditTarget
from services.auth.changes import ChangeRunner, ChangeTransaction, build_operator_caller
from services.auth.client_secrets import generate_secret, hash_secret


class IntegrationLoginStore:
    """The collection `integration_logins`."""

    def __init__(self, database: Database) -> None:
        self._logins = database["integration_logins"]

    async def add(self, integration: str, secret_hash: str, session: Session) -> None:
        """Add a login; raise `Conflict` if the integration has one."""
        now = datetime.now(UTC)
        document = {"_id": integration, "secretHash": secret_hash, "createdAt": now}
        text = f"integration {integration} has a login already"
        with raise_on_duplicate(Conflict(text, field="integration")):
            await self._logins.insert_one(document, session=session)

    async def list_all(self) -> list[IntegrationLogin]:
        """Return all logins, sorted by integration."""
        return [
            IntegrationLogin(
                found["_id"], integration_user(found["_id"]), to_ms(found["createdAt"])
            )
            async for found in self._logins.find().sort("_id", 1)
        ]

    async def find_secret_hash(self, integration: str) -> str | None:
        """Return the hash of an integration's secret; None without a login."""
        document = await self._logins.find_one({"_id": integration})
        return None if document is None else str(document["secretHash"])

    async def set_secret(self, integration: str, secret_hash: str, session: Session) -> bool:
        """Replace the secret; return whether the login exists."""
        done = await self._logins.update_one(
            {"_id": integration}, {"$set": {"secretHash": secret_hash}}, session=session
        )
        return bool(done.matched_count)

    async def remove(self, integration: str, session: Session) -> bool:
        """Delete a login; return whether it existed."""
        done = await self._logins.delete_one({"_id": integration}, session=session)
        return bool(done.deleted_count)


@dataclass(frozen=True)
class IntegrationLoginService:
    """The operations on logins of integrations."""

    store: IntegrationLoginStore
    changes: ChangeRunner

    async def create(self, request: IntegrationRef) -> IntegrationSecret:
        """Create a login and return its secret once. Raises `Conflict`."""
        integration, secret = request.integration, generate_secret()
        if integration in BUILT_IN_IDS:
            raise Conflict(f"integration {integration} is built in", field="integration")

        async def insert_login(change: ChangeTransaction) -> None:
            await self.store.add(integration, hash_secret(secret), change.session)
            change.record("created", _login_audit_target(integration))

        await self.changes.run(build_operator_caller(DEFAULT_TENANT), insert_login)
        return IntegrationSecret(integration, integration_user(integration), secret)

    async def list_all(self, _: ListIntegrationLogins) -> IntegrationLogins:
        """Return all logins, sorted by integration."""
        return IntegrationLogins(await self.store.list_all())

    async def rotate_secret(self, request: IntegrationRef) -> IntegrationSecret:
        """Replace the secret and close existing connections. Raises `NotFound`."""
        integration, secret = request.integration, generate_secret()

        async def replace_secret(change: ChangeTransaction) -> None:
            if not await self.store.set_secret(integration, hash_secret(secret), change.session):
                raise _login_not_found(integration)
            change.record("rotated", _login_audit_target(integration))
            change.close_connections(integration_user(integration))

        await self.changes.run(build_operator_caller(DEFAULT_TENANT), replace_secret)
        return IntegrationSecret(integration, integration_user(integration), secret)

    async def delete(self, request: IntegrationRef) -> Done:
        """Delete a login and close its connections. Raises `NotFound`."""
        integration = request.integration

        async def delete_login(change: ChangeTransaction) -> None:
            if not await self.store.remove(integration, change.session):
                raise _login_not_found(integration)
            change.record("deleted", _login_audit_target(integration))
            change.close_connections(integration_user(integration))

        await self.changes.run(build_operator_caller(DEFAULT_TENANT), delete_login)
        return Done()


def _login_audit_target(integration: str) -> AuditTarget:
    return AuditTarget("integration_login", integration, integration)


def _login_not_found(integration: str) -> NotFound:
    return NotFound(f"integration {integration} has no login", field="integration")


def offer_integration_logins(rpc: RpcServer, service: IntegrationLoginService) -> None:
    """Offer the operations on logins of integrations as `rpc.auth.…`."""
    rpc.offer("create_integration_login", IntegrationRef, service.create)
    rpc.offer("list_integration_logins", ListIntegrationLogins, service.list_all)
    rpc.offer("rotate_integration_secret", IntegrationRef, service.rotate_secret)
    rpc.offer("delete_integration_login", IntegrationRef, service.delete)
