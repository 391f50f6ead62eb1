"""Logins of integrations in MongoDB: `{_id: integration, secretHash, createdAt}`.

An integration is one for all tenants, and so is its login.
"""

from datetime import UTC, datetime

from libs.common.clock import to_ms
from libs.common.contracts.auth import IntegrationLogin
from libs.common.contracts.integrations import login_of
from libs.common.errors import Conflict
from libs.common.store.mongo import Database, DuplicateKey, Session


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
