"""Console clients: which consoles people may sign in with, and into which tenant."""

from datetime import UTC, datetime

from libs.common.store.mongo import Database, Session


class ConsoleClients:
    """The collection `console_clients`: `{_id: client id, secretHash, tenant, createdAt}`."""

    def __init__(self, database: Database) -> None:
        self._clients = database["console_clients"]

    async def get(self, client_id: str) -> tuple[str | None, str | None]:
        """The secret's hash and the tenant; no hash when there is no such client."""
        found = await self._clients.find_one({"_id": client_id}, {"secretHash": 1, "tenant": 1})
        return (found["secretHash"], found["tenant"]) if found else (None, None)

    async def insert(self, client_id: str, secret_hash: str, tenant: str, session: Session) -> None:
        """Add the client of a tenant."""
        document = {
            "_id": client_id,
            "secretHash": secret_hash,
            "tenant": tenant,
            "createdAt": datetime.now(UTC),
        }
        await self._clients.insert_one(document, session=session)
