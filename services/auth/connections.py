"""Counts the connections to the bus of each user, and closes those of credentials that have ended.

Users of the bus are devices, applications and integrations. `tw:admitted:{user in capitals}` in
Redis is a list of the connections that were admitted, with their credentials, the latest first. It
tells which connections a new key has made, which are never older than the key; so what is not in it
(any more) is of an earlier one. Written by the callout as it lets somebody in
(`callout/admit.lua`).
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import msgspec

from libs.common.bus import RpcClient, RpcServer
from libs.common.clock import now_ms
from libs.common.contracts.auth import (
    CLOSE_CONNECTIONS,
    FIND_CONNECTIONS,
    SHUT_OUT_SECONDS,
    Connection,
    Connections,
    Done,
    FindConnections,
    ShutOut,
)
from libs.common.contracts.mqtt import CloseMqttClients, login_of
from libs.common.errors import ThingwayError
from libs.common.store.redis import Redis

KEPT = 256
"""Most admissions of one user."""
LIFE = 3600
"""Seconds that a user's admissions are kept after the last."""


class AdmissionRecord(msgspec.Struct, frozen=True, array_like=True):
    """An admission."""

    server: str
    cid: int
    credential: str
    at: int
    """When, in ms."""

    @property
    def connection(self) -> Connection:
        """The connection that was let in."""
        return Connection(self.server, self.cid)


@dataclass(frozen=True)
class AdmissionLog:
    """Reads admissions, and stops them."""

    redis: Redis

    async def latest(self, user: str) -> list[AdmissionRecord]:
        """The latest admissions of a user."""
        rows = await self.redis.lrange(admissions_key(user), 0, -1)
        return [msgspec.json.decode(row, type=AdmissionRecord) for row in rows]

    async def bar(self, user: str, seconds: int) -> None:
        """Let a user in again only when `seconds` are over."""
        await self.redis.set(barred_key(user), 1, ex=seconds)


def barred_key(user: str) -> str:
    """What stands as long as a user is not let in."""
    return f"tw:barred:{user.upper()}"


def admissions_key(user: str) -> str:
    """Where the admissions of a user stand."""
    return f"tw:admitted:{user.upper()}"


TIMEOUT = 2.0
"""Seconds that `device` gets."""


log = logging.getLogger(__name__)

UNTOLD = 5_000
"""Milliseconds in which `device` may not have heard yet of a connection that was admitted."""


class CurrentCredentials(Protocol):
    """Knows which credentials of users of the bus are valid."""

    async def credentials_of(self, user: str) -> Collection[str]:
        """Return the valid credentials of a user."""
        ...


@dataclass(frozen=True)
class UserConnections:
    """The connections of users of the bus."""

    admissions: AdmissionLog
    rpc: RpcClient
    current: CurrentCredentials

    async def has_room(self, user: str, connection: Connection, kept: int, most: int) -> bool:
        """Tell whether a connection that was just admitted is one of `most` open ones at most.

        `kept` admissions of the user are known. Who has not come more often lately costs nothing
        more. While `device` is away nobody can tell how many are open, and everybody is let in.
        """
        if kept <= most:
            return True
        try:
            found = set(await self._open(user))
        except ThingwayError as error:
            log.warning("connections of %s cannot be counted: %s", user, error)
            return True
        since = now_ms() - UNTOLD
        untold = {one.connection for one in await self.admissions.latest(user) if one.at > since}
        return len((found | untold) - {connection}) < most

    async def close(self, user: str, *, ask_servers: bool = False) -> None:
        """Close the connections of a user that its current credentials have not made. Repeatable.

        Whoever is found has been admitted before, so the admissions are read after that.
        Raises `Unavailable` and `UpstreamFailed`.
        """
        found = await self._open(user, ask_servers=ask_servers)
        if not found:
            return
        admitted = await self.admissions.latest(user)
        current = await self.current.credentials_of(user)
        kept = {one.connection for one in admitted if one.credential in current}
        old = [one for one in found if one not in kept]
        if old:
            await self._close(old)

    async def shut_out(self, user: str) -> None:
        """Close all connections of a user, which makes no new one for `SHUT_OUT_SECONDS`.

        Raises `Unavailable` and `UpstreamFailed`; it is kept out all the same.
        """
        await self.admissions.bar(user, SHUT_OUT_SECONDS)
        await self._close(await self._open(user, ask_servers=True))

    async def _open(self, user: str, *, ask_servers: bool = False) -> list[Connection]:
        """The open connections of a user; all of them only when the servers are asked."""
        request = FindConnections(user, ask_servers)
        answer = await self.rpc.call(FIND_CONNECTIONS, request, Connections, timeout=TIMEOUT)
        return answer.connections

    async def _close(self, connections: list[Connection]) -> None:
        """Close connections; those that have ended are closed."""
        request = Connections(connections)
        await self.rpc.call(CLOSE_CONNECTIONS, request, Done, timeout=TIMEOUT)


def offer_connections(rpc: RpcServer, connections: UserConnections) -> None:
    """Answer `rpc.auth.shut_out` and `rpc.auth.close_mqtt_clients`."""

    async def shut_out(wanted: ShutOut) -> Done:
        await connections.shut_out(wanted.user)
        return Done()

    async def close(wanted: CloseMqttClients) -> Done:
        await connections.close(login_of(wanted.access_key), ask_servers=True)
        return Done()

    rpc.offer("shut_out", ShutOut, shut_out)
    rpc.offer("close_mqtt_clients", CloseMqttClients, close)
