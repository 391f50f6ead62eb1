"""Open connections to the bus: `device`, which hears of them, is asked."""

from libs.common.bus import RpcClient
from libs.common.contracts.auth import (
    CLOSE_CONNECTIONS,
    FIND_CONNECTIONS,
    Connection,
    Connections,
    Done,
    FindConnections,
)

TIMEOUT = 2.0
"""Seconds that `device` gets."""


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
