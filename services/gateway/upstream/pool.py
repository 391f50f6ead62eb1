"""Kept-alive connections to a service, distributed over all of its addresses."""

import asyncio
import itertools
import socket
import ssl
import time
from collections import deque

from yarl import URL

from services.gateway.upstream.connection import Connection

DNS_LIFE = 5.0
"""Seconds for which the addresses of a name are cached."""
IDLE_LIFE = 30.0
"""Seconds for which an idle connection is kept, less than services do (75 s)."""
LIFE = 60.0
"""Seconds after which a connection is not reused, so that new replicas get requests."""
SHORTEST_ATTEMPT = 0.3
"""Minimum seconds to wait for each of several addresses."""


class Unreachable(Exception):
    """No address of the service accepts a connection."""


class Pool:
    """A pool of connections, the most recently used first."""

    def __init__(
        self, base: URL, connect_timeout: float, tls: ssl.SSLContext | None = None
    ) -> None:
        self._host = base.host or ""
        self._port = base.port or 80
        self._ssl = tls
        self._timeout = connect_timeout
        self._idle: deque[Connection] = deque()
        self._addresses: list[str] = []
        self._resolved = float("-inf")
        self._turn = itertools.count()

    def take_idle(self) -> Connection | None:
        """Return a kept-alive connection; None without one."""
        idle = self._idle
        now = time.monotonic()
        while idle:
            connection = idle.pop()
            if connection.closed:
                continue
            if now - connection.idle_since < IDLE_LIFE and now - connection.made < LIFE:
                return connection
            connection.close()
        return None

    async def open(self) -> Connection:
        """Return a new connection to the next address; raise `Unreachable`."""
        reason: Exception = OSError("the name has no address")
        try:
            async with asyncio.timeout(self._timeout):
                addresses = await self._resolve()
                share = max(SHORTEST_ATTEMPT, self._timeout / max(1, len(addresses)))
                for address in addresses:
                    try:
                        async with asyncio.timeout(share):
                            return await self._connect(address)
                    except (OSError, TimeoutError) as error:
                        reason = error
        except (OSError, TimeoutError) as error:
            reason = error
        self._resolved = float("-inf")
        raise Unreachable(f"{self._host}:{self._port}: {reason!r}") from reason

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request."""
        self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    async def _connect(self, address: str) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            Connection,
            address,
            self._port,
            ssl=self._ssl,
            server_hostname=self._host if self._ssl else None,
        )
        return connection

    async def _resolve(self) -> list[str]:
        """Return the addresses of the service, rotated at each call."""
        if time.monotonic() - self._resolved > DNS_LIFE:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM
            )
            self._addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
            self._resolved = time.monotonic()
        if not self._addresses:
            return []
        turn = next(self._turn) % len(self._addresses)
        return self._addresses[turn:] + self._addresses[:turn]
