"""`rpc.device.find_connections` and `close_connections`: for those whose key has ended."""

from functools import partial

from nats.errors import Error as NatsError

from libs.common.bus import RpcServer
from libs.common.contracts.auth import Connections, Done, FindConnections
from libs.common.errors import Unavailable
from libs.common.jobs import gather_limited
from services.device.reports.presence.connections import SystemAccount
from services.device.reports.presence.store import PresenceStore

ABREAST = 64
"""Connections of one request that are closed at a time."""


def offer_connections(rpc: RpcServer, store: PresenceStore, account: SystemAccount) -> None:
    """Offer the operations."""

    async def find(request: FindConnections) -> Connections:
        found = set(await store.connections(request.user.upper()))
        if request.ask_servers:
            try:
                for server in await account.known_servers():
                    users = await account.of_user(server, request.user)
                    found.update(user.connection for user in users)
            except (NatsError, TimeoutError) as error:
                raise Unavailable("NATS does not list its connections") from error
        return Connections(list(found))

    async def close(request: Connections) -> Done:
        await gather_limited(ABREAST, (partial(account.close, one) for one in request.connections))
        return Done()

    rpc.offer("find_connections", FindConnections, find)
    rpc.offer("close_connections", Connections, close)
