"""Connections of devices, as NATS's system account tells them.

The SN is `client.user` of a connect event and `authorized_user` of a CONNZ row; both
carry `issuer_key` only when they came through the auth callout (measured, 2.15.1). A
device may have several connections for a moment: at a takeover the new one is told
before the old one ends.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable

import msgspec
from nats.errors import Error as NatsError

from libs.common.bus import Bus

log = logging.getLogger(__name__)

ACCOUNT = "THINGWAY"
APPLICATION_PREFIX = "app."
PAGE = 1024
ANSWER = 2.0
"""Seconds in which the servers of a cluster answer."""
QUIET = 0.25
"""Seconds without a further answer after which all have answered."""

Connection = tuple[str, int]
"""Server id and connection id."""


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
    def sn(self) -> str | None:
        """The device's SN; None for services and applications."""
        return _sn(self.client.user, self.client.issuer_key)


class _Row(msgspec.Struct):
    cid: int
    authorized_user: str = ""
    issuer_key: str = ""


class _Page(msgspec.Struct):
    connections: list[_Row] = []
    total: int = 0


class _Connz(msgspec.Struct):
    server: _Server
    data: _Page = msgspec.field(default_factory=_Page)


def _sn(user: str, issuer_key: str) -> str | None:
    return user if issuer_key and user and not user.startswith(APPLICATION_PREFIX) else None


class SystemAccount:
    """Asks NATS about connections, and closes them."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def connections(self) -> dict[str, set[Connection]]:
        """All open connections of devices, by SN in capitals."""
        found: dict[str, set[Connection]] = defaultdict(set)
        for server, row in await self._rows():
            sn = _sn(row.authorized_user, row.issuer_key)
            if sn is not None:
                found[sn.upper()].add((server, row.cid))
        return found

    async def close(self, user: str) -> int:
        """Close every connection of a device (SN) or application; return how many.

        A request, because nats-server does nothing for a KICK without a reply subject.
        """
        wanted = user.upper()
        closed = 0
        for server, row in await self._rows():
            if row.issuer_key and row.authorized_user.upper() == wanted:
                request = msgspec.json.encode({"cid": row.cid})
                subject = f"$SYS.REQ.SERVER.{server}.KICK"
                await self._bus.client.request(subject, request, timeout=ANSWER)
                closed += 1
        return closed

    async def _rows(self) -> list[tuple[str, _Row]]:
        """Every open connection of the account, with its server's id."""
        rows: list[tuple[str, _Row]] = []
        offset = 0
        while True:
            answers = await self._ask(offset)
            rows += [(one.server.id, row) for one in answers for row in one.data.connections]
            offset += PAGE
            if all(one.data.total <= offset for one in answers):
                return rows

    async def _ask(self, offset: int) -> list[_Connz]:
        """Ask every server; the first answer is waited for, the others come soon after."""
        request = {
            "auth": True,
            "acc": ACCOUNT,
            "state": 0,
            "sort": "cid",
            "limit": PAGE,
            "offset": offset,
        }
        inbox = self._bus.client.new_inbox()
        subscription = await self._bus.client.subscribe(inbox)
        answers: list[_Connz] = []
        try:
            await self._bus.client.publish(
                "$SYS.REQ.SERVER.PING.CONNZ", msgspec.json.encode(request), reply=inbox
            )
            while True:
                message = await subscription.next_msg(timeout=QUIET if answers else ANSWER)
                answers.append(msgspec.json.decode(message.data, type=_Connz))
        except (TimeoutError, NatsError):
            if not answers:
                raise
        finally:
            await subscription.unsubscribe()
        return answers


class Tracker:
    """Which devices are connected: a reconciled picture, kept up by events."""

    def __init__(self) -> None:
        self._open: dict[str, set[Connection]] = {}

    def replace(self, connections: dict[str, set[Connection]]) -> None:
        """Begin anew from what the servers say."""
        self._open = dict(connections)

    def apply(self, changes: Iterable[Change]) -> set[str]:
        """Take in events; return the SNs (capitals) that they are about."""
        touched = set()
        for change in changes:
            if change.sn is None:
                continue
            sn = change.sn.upper()
            connection = (change.server.id, change.client.id)
            open_now = self._open.setdefault(sn, set())
            if change.reason is None:
                open_now.add(connection)
            else:
                open_now.discard(connection)
            if not open_now:
                del self._open[sn]
            touched.add(sn)
        return touched

    def is_connected(self, sn: str) -> bool:
        """Whether a device (SN in capitals) has a connection."""
        return sn in self._open

    @property
    def connected(self) -> set[str]:
        """The SNs (capitals) of all connected devices."""
        return set(self._open)


async def next_changes(queue: "asyncio.Queue[Change]", wait: float) -> list[Change]:
    """The changes that are there, or the first that comes within `wait` seconds."""
    try:
        async with asyncio.timeout(wait):
            changes = [await queue.get()]
    except TimeoutError:
        return []
    while not queue.empty():
        changes.append(queue.get_nowait())
    return changes
