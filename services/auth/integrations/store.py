"""Logins of integrations in MongoDB: `{_id: integration, secretHash, createdAt}`."""

from typing import Any

from libs.common.errors import Conflict
from libs.common.store.mongo import Database, DuplicateKey
from services.auth.changes import Change
from services.auth.integrations.schemas import StoredLogin


class IntegrationLoginStore:
    """The collection `integration_logins`."""

    def __init__(self, database: Database) -> None:
        self._logins = database["integration_logins"]

    async def add(self, login: StoredLogin, change: Change) -> None:
        """Add a login; raise `Conflict` when the integration has one."""
        document = {
            "_id": login.integration,
            "secretHash": login.secret_hash,
            "createdAt": login.created_at,
        }
        try:
            await self._logins.insert_one(document, session=change.session)
        except DuplicateKey as error:
            raise Conflict(
                f"integration {login.integration} has a login already", field="integration"
            ) from error

    async def all(self) -> list[StoredLogin]:
        """All logins by integration."""
        return [_of(document) async for document in self._logins.find().sort("_id", 1)]

    async def secret_hash(self, integration: str) -> str | None:
        """The hash of an integration's secret; None without a login."""
        found = await self._logins.find_one({"_id": integration})
        return None if found is None else str(found["secretHash"])

    async def set_secret(self, integration: str, secret_hash: str, change: Change) -> bool:
        """Set another secret; tell whether there is such a login."""
        done = await self._logins.update_one(
            {"_id": integration}, {"$set": {"secretHash": secret_hash}}, session=change.session
        )
        return bool(done.matched_count)

    async def remove(self, integration: str, change: Change) -> bool:
        """Remove a login; tell whether there was one."""
        done = await self._logins.delete_one({"_id": integration}, session=change.session)
        return bool(done.deleted_count)


def _of(document: dict[str, Any]) -> StoredLogin:
    return StoredLogin(
        integration=document["_id"],
        secret_hash=document["secretHash"],
        created_at=document["createdAt"],
    )
