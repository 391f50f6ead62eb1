"""Connections to the bus, as NATS's system account tells of them.

The user is `client.user` of an event and `authorized_user` of a CONNZ row; both carry
`issuer_key` only when they came through the auth callout (measured, 2.15.1): services do not.
"""

import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from libs.common.bus import Bus
from libs.common.bus.accounts import ACCOUNT
from libs.common.contracts.auth import Connection
from libs.common.errors import Unavailable
from libs.common.jobs import gather_limited

SYSTEM_ACCOUNT = "SYS"
PAGE = 2048
"""Rows of one answer: some 1 MB. The server looks at all its connections for each answer."""
ANSWER = 2.0
"""Seconds in which a server answers."""
FOUND = 4.0
"""Seconds for which it is remembered which servers there are."""
QUIET = 0.25
"""Seconds without a further answer after which all servers have answered."""


class User(msgspec.Struct, frozen=True):
    """Whose connection it is."""

    connection: Connection
    name: str
    """In capitals: an SN, `APP.…` or `INTEGRATION.…`."""
    subscriptions: int = 0
    """Over MQTT, as a look has told; nats-server itself bounds the others."""

    @property
    def is_device(self) -> bool:
        """No SN has a dot, and all other names do."""
        return "." not in self.name


class _Server(msgspec.Struct):
    id: str = ""


class _Client(msgspec.Struct):
    id: int
    user: str = ""
    issuer_key: str = ""


class Change(msgspec.Struct):
    """A connect or disconnect event."""

    server: _Server
    client: _Client
    reason: str | None = None

    @property
    def opened(self) -> bool:
        """Whether the connection begins; else it ends."""
        return self.reason is None

    @property
    def user(self) -> User | None:
        """Whose connection; None of a service of the platform."""
        return _user(self.server.id, self.client.id, self.client.user, self.client.issuer_key)


class _Row(msgspec.Struct):
    cid: int
    account: str = ""
    subscriptions: int = 0
    authorized_user: str = ""
    issuer_key: str = ""


class _Rows(msgspec.Struct):
    server_id: str = ""
    connections: list[_Row] = []


class _Connz(msgspec.Struct):
    server: _Server
    data: _Rows = msgspec.field(default_factory=_Rows)


class Page(msgspec.Struct, frozen=True):
    """Rows of one server, ascending by cid."""

    first: int
    """The lowest cid; 0 when there is none."""
    last: int
    number: int
    """How many rows; fewer than `PAGE` are the last ones."""
    users: list[User]
    """Of those rows that are from outside."""


def _user(server: str, cid: int, name: str, issuer_key: str, subscriptions: int = 0) -> User | None:
    if not (issuer_key and name):
        return None
    return User(Connection(server, cid), name.upper(), subscriptions)


class SystemAccount:
    """Asks NATS about connections, and closes them.

    Raises what nats-py raises when a server does not answer.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._found: tuple[float, set[str]] = (-FOUND, set())

    @property
    def reconnects(self) -> int:
        """How often the connection to NATS was lost."""
        return int(self._bus.client.stats["reconnects"])

    async def servers(self) -> set[str]:
        """The ids of all servers: the first answer is waited for, the others come soon after."""
        inbox = self._bus.client.new_inbox()
        subscription = await self._bus.client.subscribe(inbox)
        found: set[str] = set()
        try:
            await self._bus.client.publish(
                "$SYS.REQ.SERVER.PING.CONNZ", msgspec.json.encode(_only_of_us(limit=1)), inbox
            )
            while True:
                message = await subscription.next_msg(timeout=QUIET if found else ANSWER)
                found.add(msgspec.json.decode(message.data, type=_Connz).server.id)
        except (TimeoutError, NatsError):
            if not found:
                raise
        finally:
            await subscription.unsubscribe()
        return found

    async def known_servers(self) -> set[str]:
        """The ids of all servers, as they were up to `FOUND` seconds ago."""
        at, servers = self._found
        if at + FOUND <= time.monotonic():
            servers = await self.servers()
            self._found = (time.monotonic(), servers)
        return servers

    async def page(self, server: str, offset: int) -> Page:
        """The rows of a server from `offset` on, whatever account they are in."""
        rows = await self._ask(server, sort="cid", limit=PAGE, offset=offset)
        users = _users(server, rows)
        if not rows:
            return Page(0, 0, 0, [])
        return Page(rows[0].cid, rows[-1].cid, len(rows), users)

    async def is_open(self, connection: Connection) -> bool:
        """Whether a connection is open.

        The account does not restrict a question for one cid; that of a small one keeps the
        server from copying its whole list.
        """
        rows = await self._ask(**_only_of_us(cid=connection.cid), server=connection.server)
        return any(row.cid == connection.cid for row in rows)

    async def of_user(self, server: str, user: str) -> list[User]:
        """A user's connections to a server, which looks through all of its own."""
        found: list[User] = []
        for offset in range(0, 2**31, PAGE):
            rows = await self._ask(server, user=user, sort="cid", limit=PAGE, offset=offset)
            found += _users(server, rows)
            if len(rows) < PAGE:
                break
        return found

    async def close(self, connection: Connection) -> None:
        """Close a connection; it may have ended already.

        A request, because nats-server does nothing for a KICK without a reply subject. Raises
        `Unavailable` when its server cannot be reached.
        """
        body = msgspec.json.encode({"cid": connection.cid})
        subject = f"$SYS.REQ.SERVER.{connection.server}.KICK"
        try:
            await self._bus.client.request(subject, body, timeout=ANSWER)
        except (NoRespondersError, TimeoutError) as error:
            raise Unavailable(f"the NATS server {connection.server} does not answer") from error

    async def _ask(self, server: str, **options: Any) -> list[_Row]:
        """Ask one server; a filter that it does not know must not look like an empty answer."""
        message = await self._bus.client.request(
            f"$SYS.REQ.SERVER.{server}.CONNZ",
            msgspec.json.encode({"auth": True, "state": 0, **options}),
            timeout=ANSWER,
        )
        answer = msgspec.json.decode(message.data, type=_Connz)
        if answer.data.server_id != server:
            raise Unavailable(f"the NATS server {server} does not list its connections")
        return answer.data.connections


def _only_of_us(**options: Any) -> dict[str, Any]:
    return {"acc": SYSTEM_ACCOUNT, **options}


def _users(server: str, rows: Iterable[_Row]) -> list[User]:
    found = (
        _user(
            server,
            row.cid,
            row.authorized_user,
            row.issuer_key,
            row.subscriptions if row.account == ACCOUNT else 0,
        )
        for row in rows
    )
    return [user for user in found if user is not None]


async def closed_among(account: SystemAccount, users: Iterable[User], at_once: int) -> list[User]:
    """Return those whose connection has ended; each is asked for by itself."""
    listed = list(users)
    asked = (partial(account.is_open, user.connection) for user in listed)
    opened = await gather_limited(at_once, asked)
    return [user for user, is_open in zip(listed, opened, strict=True) if not is_open]
