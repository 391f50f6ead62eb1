"""Console clients: which consoles people may sign in with, and into which tenant."""

from dataclasses import dataclass

from libs.common.store.mongo import Database
from services.auth.secret_hash import secret_hash, secret_matches


@dataclass(frozen=True, slots=True)
class ConsoleClient:
    """A client whose secret was right; `tenant` is the only one it serves, None means any."""

    tenant: str | None


class ConsoleClients:
    """The client of the configuration, and the collection `console_clients` of the tenants' own."""

    def __init__(self, database: Database, client_id: str, client_secret: str) -> None:
        self._clients = database["console_clients"]
        self._default = (client_id, secret_hash(client_secret)) if client_id else None

    async def proven(self, client_id: str, client_secret: str) -> ConsoleClient | None:
        """The client with this id and secret; None for an unknown one as for a wrong secret."""
        stored, tenant = await self._stored(client_id)
        return ConsoleClient(tenant) if secret_matches(client_secret, stored) else None

    async def _stored(self, client_id: str) -> tuple[str | None, str | None]:
        """The secret's hash and the tenant; no hash when there is no such client."""
        if self._default is not None and client_id == self._default[0]:
            return self._default[1], None
        found = await self._clients.find_one({"_id": client_id}, {"secretHash": 1, "tenant": 1})
        return (found["secretHash"], found["tenant"]) if found else (None, None)
