"""Counts NATS connections by user, and closes those with revoked credentials.

NATS users are devices, applications, integrations and access keys. The Redis list
`tw:admitted:{user in capitals}` holds the latest admitted connections with their credentials,
newest first. The callout writes it (`callout/admit.lua`). A connection that is missing from the
list is older than every connection in it, so its credential counts as revoked.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import msgspec

from libs.common.bus import RpcClient, RpcServer
from libs.common.clock import now_ms
from libs.common.contracts.auth import (
    BLOCK_SECONDS,
    CLOSE_CONNECTIONS,
    FIND_CONNECTIONS,
    BlockUser,
    Connection,
    Connections,
    Done,
    FindConnections,
)
from libs.common.contracts.mqtt import CloseMqttClients, mqtt_client_user
from libs.common.errors import ThingwayError
from libs.common.store.redis import Redis

MAX_STORED_ADMISSIONS_PER_USER = 256
"""Maximum stored admissions of a user."""
ADMISSION_RETENTION_SECONDS = 3600
"""Seconds that admissions are stored after the latest one."""


class AdmissionRecord(msgspec.Struct, frozen=True, array_like=True):
    """A stored admission: connection, credential and time of a login."""

    server: str
    cid: int
    credential: str
    at: int
    """Unix time in ms."""

    @property
    def connection(self) -> Connection:
        """Return the connection, as the bus identifies it."""
        return Connection(self.server, self.cid)


@dataclass(frozen=True)
class AdmissionLog:
    """The stored admissions and temporary blocks of NATS users in Redis."""

    redis: Redis

    async def list_latest(self, user: str) -> list[AdmissionRecord]:
        """Return the latest admissions of a user."""
        rows = await self.redis.lrange(admissions_key(user), 0, -1)
        return [msgspec.json.decode(row, type=AdmissionRecord) for row in rows]

    async def block_user(self, user: str, seconds: int) -> None:
        """Reject all logins of a user for `seconds`."""
        await self.redis.set(user_block_key(user), 1, ex=seconds)


def user_block_key(user: str) -> str:
    """Return the Redis key that exists while a user is blocked."""
    return f"tw:barred:{user.upper()}"


def admissions_key(user: str) -> str:
    """Return the Redis key of a user's admissions."""
    return f"tw:admitted:{user.upper()}"


DEVICE_SERVICE_TIMEOUT_SECONDS = 2.0
"""Timeout of requests to `device`, in seconds."""


log = logging.getLogger(__name__)

MAX_REPORT_DELAY_MS = 5_000
"""Milliseconds within which `device` learns of an admitted connection."""


class CredentialLookup(Protocol):
    """Lookup of the valid credentials of NATS users."""

    async def list_credentials(self, user: str) -> Collection[str]:
        """Return the valid credentials of a user."""
        ...


@dataclass(frozen=True)
class UserConnections:
    """Counts and closes the connections of NATS users."""

    admissions: AdmissionLog
    rpc: RpcClient
    current: CredentialLookup

    async def has_room(
        self, user: str, connection: Connection, admissions: int, maximum: int
    ) -> bool:
        """Return whether a new connection keeps the user within `maximum` connections.

        `admissions` is the number of known admissions of the user; up to `maximum`, no request is
        needed. While `device` is unreachable, every connection is allowed.
        """
        if admissions <= maximum:
            return True
        try:
            open_connections = set(await self._list_connections(user))
        except ThingwayError as error:
            log.warning("connections of %s cannot be counted: %s", user, error)
            return True
        since = now_ms() - MAX_REPORT_DELAY_MS
        latest = await self.admissions.list_latest(user)
        unreported = {record.connection for record in latest if record.at > since}
        return len((open_connections | unreported) - {connection}) < maximum

    async def close_revoked(self, user: str, *, ask_servers: bool = False) -> None:
        """Close a user's connections made with revoked credentials. Idempotent.

        `ask_servers` requests the connections from all nats-servers, not only from `device`.

        Open connections are read before the admissions, because an open connection has always been
        admitted before. Raises `Unavailable` and `UpstreamFailed`.
        """
        open_connections = await self._list_connections(user, ask_servers=ask_servers)
        if not open_connections:
            return
        admitted = await self.admissions.list_latest(user)
        current = await self.current.list_credentials(user)
        current_connections = {
            record.connection for record in admitted if record.credential in current
        }
        if revoked := [
            connection for connection in open_connections if connection not in current_connections
        ]:
            await self._close_connections(revoked)

    async def block_and_close_all(self, user: str) -> None:
        """Close all connections of a user and block it for `BLOCK_SECONDS`.

        Raises `Unavailable` and `UpstreamFailed`; the user is blocked even then.
        """
        await self.admissions.block_user(user, BLOCK_SECONDS)
        await self._close_connections(await self._list_connections(user, ask_servers=True))

    async def _list_connections(self, user: str, *, ask_servers: bool = False) -> list[Connection]:
        """Return a user's connections that `device` knows; or ask all nats-servers."""
        request = FindConnections(user, ask_servers)
        answer = await self.rpc.call(
            FIND_CONNECTIONS, request, Connections, timeout=DEVICE_SERVICE_TIMEOUT_SECONDS
        )
        return answer.connections

    async def _close_connections(self, connections: list[Connection]) -> None:
        request = Connections(connections)
        await self.rpc.call(
            CLOSE_CONNECTIONS, request, Done, timeout=DEVICE_SERVICE_TIMEOUT_SECONDS
        )


def offer_connections(rpc: RpcServer, connections: UserConnections) -> None:
    """Offer `rpc.auth.shut_out` and `rpc.auth.close_mqtt_clients`."""

    async def shut_out(request: BlockUser) -> Done:
        await connections.block_and_close_all(request.user)
        return Done()

    async def close(request: CloseMqttClients) -> Done:
        await connections.close_revoked(mqtt_client_user(request.access_key), ask_servers=True)
        return Done()

    rpc.offer("shut_out", BlockUser, shut_out)
    rpc.offer("close_mqtt_clients", CloseMqttClients, close)
