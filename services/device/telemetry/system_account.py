"""Connections to NATS, according to its system account.

The user is `client.user` of an event and `authorized_user` of a CONNZ row. Both have `issuer_key`
only for users authorized by the auth callout (measured with 2.15.1), not for services.
"""

import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from libs.common.bus import Bus
from libs.common.bus.accounts import PLATFORM_ACCOUNT
from libs.common.contracts.auth import Connection
from libs.common.errors import Unavailable
from libs.common.jobs import gather_limited

SYSTEM_ACCOUNT = "SYS"
ROWS_PER_ANSWER = 2048
"""Rows of one answer, some 1 MB. For each answer the server reads all its connections."""
ANSWER_TIMEOUT_SECONDS = 2.0
"""Seconds within which a server answers."""
SERVER_CACHE_SECONDS = 4.0
"""Seconds that the list of servers is cached."""
QUIET_SECONDS = 0.25
"""Seconds without a further answer after which all servers are assumed to have answered."""


class ConnectedUser(msgspec.Struct, frozen=True):
    """A user of NATS with one of its connections."""

    connection: Connection
    name: str
    """Upper case: an SN, `APP.…` or `INTEGRATION.…`."""
    subscriptions: int = 0
    """Number of MQTT subscriptions, if a scan has read it; nats-server limits other ones itself."""

    @property
    def is_device(self) -> bool:
        """Return whether the user is a device: other names contain a dot, SNs do not."""
        return "." not in self.name


class _Server(msgspec.Struct):
    id: str = ""


class _Client(msgspec.Struct):
    id: int
    user: str = ""
    issuer_key: str = ""


class ConnectionChange(msgspec.Struct):
    """A connect or disconnect event."""

    server: _Server
    client: _Client
    reason: str | None = None

    @property
    def is_opened(self) -> bool:
        """Return whether the connection opened; otherwise it closed."""
        return self.reason is None

    @property
    def user(self) -> ConnectedUser | None:
        """Return connection and user; None for a service of the platform."""
        return _external_user(
            self.server.id, self.client.id, self.client.user, self.client.issuer_key
        )


class _ConnzRow(msgspec.Struct):
    cid: int
    account: str = ""
    subscriptions: int = 0
    authorized_user: str = ""
    issuer_key: str = ""


class _ConnzData(msgspec.Struct):
    server_id: str = ""
    connections: list[_ConnzRow] = []


class _ConnzAnswer(msgspec.Struct):
    server: _Server
    data: _ConnzData = msgspec.field(default_factory=_ConnzData)


class ConnzPage(msgspec.Struct, frozen=True):
    """A page of one server's connections, ascending by cid (client id)."""

    first: int
    """The lowest cid; 0 without rows."""
    last: int
    number: int
    """The number of rows; the last page has fewer than `ROWS_PER_ANSWER`."""
    users: list[ConnectedUser]
    """The rows of external users."""


def _external_user(
    server: str, cid: int, name: str, issuer_key: str, subscriptions: int = 0
) -> ConnectedUser | None:
    if not (issuer_key and name):
        return None
    return ConnectedUser(Connection(server, cid), name.upper(), subscriptions)


class SystemAccount:
    """Lists and closes connections of all NATS accounts through the system account.

    Raises the errors of nats-py when a server does not answer.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._found: tuple[float, set[str]] = (-SERVER_CACHE_SECONDS, set())

    @property
    def reconnect_count(self) -> int:
        """Return how often the connection to NATS was lost."""
        return int(self._bus.client.stats["reconnects"])

    async def servers(self) -> set[str]:
        """Return the ids of all servers that answer.

        The first answer must arrive within `ANSWER_TIMEOUT_SECONDS`. Then the wait ends when no
        further server answers for `QUIET_SECONDS`.
        """
        inbox = self._bus.client.new_inbox()
        subscription = await self._bus.client.subscribe(inbox)
        server_ids: set[str] = set()
        try:
            await self._bus.client.publish(
                "$SYS.REQ.SERVER.PING.CONNZ",
                msgspec.json.encode({"acc": SYSTEM_ACCOUNT, "limit": 1}),
                inbox,
            )
            while True:
                message = await subscription.next_msg(
                    timeout=QUIET_SECONDS if server_ids else ANSWER_TIMEOUT_SECONDS
                )
                server_ids.add(msgspec.json.decode(message.data, type=_ConnzAnswer).server.id)
        except (TimeoutError, NatsError):
            if not server_ids:
                raise
        finally:
            await subscription.unsubscribe()
        return server_ids

    async def cached_servers(self) -> set[str]:
        """Return the ids of all servers, up to `SERVER_CACHE_SECONDS` old."""
        at, servers = self._found
        if at + SERVER_CACHE_SECONDS <= time.monotonic():
            servers = await self.servers()
            self._found = (time.monotonic(), servers)
        return servers

    async def page(self, server: str, offset: int) -> ConnzPage:
        """Return a page of a server's connections in all accounts, from row `offset` on."""
        rows = await self._request(server, sort="cid", limit=ROWS_PER_ANSWER, offset=offset)
        users = _external_users(server, rows)
        if not rows:
            return ConnzPage(0, 0, 0, [])
        return ConnzPage(rows[0].cid, rows[-1].cid, len(rows), users)

    async def is_open(self, connection: Connection) -> bool:
        """Return whether a connection is open.

        The request names no account, because the server would then search only that account.
        """
        rows = await self._request(connection.server, cid=connection.cid)
        return any(row.cid == connection.cid for row in rows)

    async def list_user_connections(self, server: str, user: str) -> list[ConnectedUser]:
        """Return a user's connections to a server, which reads all of its connections to answer."""
        users: list[ConnectedUser] = []
        for offset in range(0, 2**31, ROWS_PER_ANSWER):
            rows = await self._request(
                server, user=user, sort="cid", limit=ROWS_PER_ANSWER, offset=offset
            )
            users += _external_users(server, rows)
            if len(rows) < ROWS_PER_ANSWER:
                break
        return users

    async def close(self, connection: Connection) -> None:
        """Close a connection, if it is still open.

        This is a request, because nats-server ignores a KICK without a reply subject. Raises
        `Unavailable` when the server does not answer.
        """
        body = msgspec.json.encode({"cid": connection.cid})
        subject = f"$SYS.REQ.SERVER.{connection.server}.KICK"
        try:
            await self._bus.client.request(subject, body, timeout=ANSWER_TIMEOUT_SECONDS)
        except (NoRespondersError, TimeoutError) as error:
            raise Unavailable(f"the NATS server {connection.server} does not answer") from error

    async def _request(self, server: str, **options: Any) -> list[_ConnzRow]:
        """Request connections from one server; raise `Unavailable` if it does not list them."""
        message = await self._bus.client.request(
            f"$SYS.REQ.SERVER.{server}.CONNZ",
            msgspec.json.encode({"auth": True, "state": 0, **options}),
            timeout=ANSWER_TIMEOUT_SECONDS,
        )
        answer = msgspec.json.decode(message.data, type=_ConnzAnswer)
        if answer.data.server_id != server:
            raise Unavailable(f"the NATS server {server} does not list its connections")
        return answer.data.connections


def _external_users(server: str, rows: Iterable[_ConnzRow]) -> list[ConnectedUser]:
    users = (
        _external_user(
            server,
            row.cid,
            row.authorized_user,
            row.issuer_key,
            row.subscriptions if row.account == PLATFORM_ACCOUNT else 0,
        )
        for row in rows
    )
    return [user for user in users if user is not None]


async def filter_closed(
    account: SystemAccount, users: Iterable[ConnectedUser], at_once: int
) -> list[ConnectedUser]:
    """Return the connections of `users` that are closed; each is checked individually."""
    listed = list(users)
    checks = (partial(account.is_open, user.connection) for user in listed)
    opened = await gather_limited(at_once, checks)
    return [user for user, is_open in zip(listed, opened, strict=True) if not is_open]
