"""Connections of principals to the bus: `device`, which hears of them, is asked."""

import logging
import time
from functools import partial

from libs.common.bus import RpcClient
from libs.common.contracts.auth import (
    CLOSE_CONNECTIONS,
    FIND_CONNECTIONS,
    Connection,
    Connections,
    Done,
    FindConnections,
)
from libs.common.errors import ThingwayError
from libs.common.jobs import Beside
from libs.common.recent import Recent

log = logging.getLogger(__name__)

TIMEOUT = 2.0
"""Seconds that `device` gets."""
CLOSED_EVERY = 1.0
"""Seconds between two times that the connections of one user are closed."""
CLOSED = 10_000
"""Users that are remembered for it."""


class ConnectionsOverRpc:
    """Finds and closes connections. Raises `Unavailable` and `UpstreamFailed`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def find(self, user: str, *, ask_servers: bool = False) -> list[Connection]:
        """The open connections of a user; all of them only when the servers are asked."""
        request = FindConnections(user, ask_servers)
        answer = await self._rpc.call(FIND_CONNECTIONS, request, Connections, timeout=TIMEOUT)
        return answer.connections

    async def close(self, connections: list[Connection]) -> None:
        """Close connections; those that have ended are closed."""
        request = Connections(connections)
        await self._rpc.call(CLOSE_CONNECTIONS, request, Done, timeout=TIMEOUT)


class Closer:
    """Closes the connections of who sends too much, beside what its caller does."""

    def __init__(self, rpc: RpcClient) -> None:
        self._connections = ConnectionsOverRpc(rpc)
        self._closed: Recent[str, float] = Recent(CLOSED)
        self._closing = Beside()

    def close(self, user: str) -> None:
        """Close the connections of a user of the bus, once in `CLOSED_EVERY` seconds."""
        now = time.monotonic()
        if (self._closed.get(user) or -CLOSED_EVERY) + CLOSED_EVERY <= now:
            self._closed.put(user, now)
            self._closing.begin(user, partial(self._close, user))

    async def _close(self, user: str) -> None:
        try:
            found = await self._connections.find(user)
            if found:
                await self._connections.close(found)
        except ThingwayError as error:
            log.warning("the connections of %s stay open: %s", user, error)
