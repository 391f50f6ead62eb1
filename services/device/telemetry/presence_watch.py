"""Watches connections: presence of devices that connect to nats-server.

What is known stands in MongoDB, and events of NATS change it. Events may be lost (a server
killed, ourselves away), so all servers are looked through again and again, page by page: at
once and fast after anything was lost, else slowly. Nobody is OFFLINE because of a look: a
connection that a page lacks is asked for by itself.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from libs.common.bus import Bus
from libs.common.bus.accounts import ACCOUNTS, MQTT_SUBSCRIPTIONS
from libs.common.contracts.auth import Connection
from libs.common.decoding import INVALID_JSON
from libs.common.errors import Unavailable
from libs.common.jobs import cancel_and_wait, wait_for_event
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import StoreError
from services.device.telemetry.ports import ReconnectListener
from services.device.telemetry.presence_store import CHUNK, PresenceStore
from services.device.telemetry.system_account import PAGE, Change, SystemAccount, User, closed_among

log = logging.getLogger(__name__)

OVERLAP = 128
"""Rows of the page before that a page begins with."""


@dataclass(frozen=True, slots=True)
class ConnectionPage:
    """All connections of a server with a cid above `after`, and up to `until`."""

    after: int
    until: int | None
    """None: there are no more."""
    users: list[User]


class ConnectionScan:
    """Walks along the connections of a server.

    Rows move to the front when those before them close, so a page must begin at or before
    the last cid that was seen; else it is asked for again from further in front. Those that
    move to the back, because a lower cid was let in late, are new and told by an event.
    """

    def __init__(self, account: SystemAccount, server: str) -> None:
        self._account = account
        self._server = server
        self._seen = 0
        self._position = 0
        self.ended = False

    async def next(self) -> ConnectionPage:
        """The next stretch; `cancel_and_wait` tells whether it is the last."""
        offset = max(0, self._position - OVERLAP)
        page = await self._account.page(self._server, offset)
        while offset and (not page.number or page.first > self._seen):
            offset = max(0, offset - PAGE)
            page = await self._account.page(self._server, offset)
        after = self._seen
        self.ended = page.number < PAGE
        self._position = offset + page.number
        self._seen = max(after, page.last)
        users = [user for user in page.users if user.connection.cid > after]
        return ConnectionPage(after, None if self.ended else self._seen, users)


ROUND = 5.0
"""Seconds between two looks through all servers."""
LOAD = 0.05
"""Share of a server's time that looks may take, unless something was lost."""
AGAIN = 1.0
"""Seconds after which a step that failed is tried again, and between two sweeps."""
GONE = 10.0
"""Seconds without an answer after which a server's connections have ended."""
QUEUE = 20_000
"""Most events that wait to be written; more are lost, and looked for."""
ASKED = 32
"""Connections that are asked for at the same time."""
SUBSCRIBES_WITHIN = timedelta(milliseconds=400)
"""A device that has just connected gets this long to subscribe before commands are sent."""


class PresenceWatch:
    """Keeps connection states true."""

    def __init__(
        self,
        *,
        system: Bus,
        store: PresenceStore,
        account: SystemAccount,
        reconnects: ReconnectListener,
    ) -> None:
        self._system = system
        self._store = store
        self._account = account
        self._reconnects = reconnects
        self._writing = asyncio.Lock()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._changes: deque[Change] = deque()
        self._heard = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost.set()
        self._ended: LruCache[Connection, None] = LruCache(QUEUE)
        """Connections that have ended; a page that was on its way may still show them."""
        self._system_reconnects = 0
        self._missing: dict[str, float] = {}
        """Servers that do not answer, and since when (monotonic)."""

    async def run(self) -> None:
        """Watch for ever."""
        self._begin_anew()
        subscriptions = [
            await self._system.client.subscribe(f"$SYS.ACCOUNT.{account}.{what}", cb=self._hear)
            for account in ACCOUNTS
            for what in ("CONNECT", "DISCONNECT")
        ]
        jobs = (self._follow, self._look, self._sweep, self._notice_reconnects)
        tasks = [asyncio.ensure_future(self._repeat(job)) for job in jobs]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_and_wait(*tasks)
            for subscription in subscriptions:
                if not self._system.client.is_closed:
                    await subscription.unsubscribe()

    async def _hear(self, message: Msg) -> None:
        try:
            change = msgspec.json.decode(message.data, type=Change)
        except INVALID_JSON as error:
            log.warning("a system event of NATS cannot be read: %s", error)
            return
        self.take(change)

    def take(self, change: Change) -> None:
        """Take in an event; one too many is not kept but looked for."""
        user = change.user
        if user is None:
            return
        if not change.opened:
            self._ended.put(user.connection, None)
        if len(self._changes) < QUEUE:
            self._changes.append(change)
            self._heard.set()
        else:
            self._lost.set()

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do a step for ever; what fails is looked for anew."""
        while True:
            try:
                await step()
            except (StoreError, NatsError, OSError, TimeoutError, Unavailable) as error:
                log.warning("presence waits: %r", error)
                self._lost.set()
                await asyncio.sleep(AGAIN)

    async def _follow(self) -> None:
        """Write what events tell."""
        await self._heard.wait()
        changes = [self._changes.popleft() for _ in range(min(CHUNK, len(self._changes)))]
        if not self._changes:
            self._heard.clear()
        last = {user.connection: change for change in changes if (user := change.user)}
        users = [(change.opened, user) for change in last.values() if (user := change.user)]
        await self._write(
            [user for opened, user in users if opened],
            [user for opened, user in users if not opened],
        )

    async def _look(self) -> None:
        """Look through all servers once, and then wait for the next time."""
        hurried = self._lost.is_set()
        self._lost.clear()
        answering = await self._account.servers()
        for server in answering:
            await self._look_through(server, hurried=hurried)
        await self._end_servers(await self._store.servers() - answering)
        await wait_for_event(self._lost, ROUND)

    async def _look_through(self, server: str, *, hurried: bool) -> None:
        look = ConnectionScan(self._account, server)
        while not look.ended:
            began = time.monotonic()
            stretch = await look.next()
            took = time.monotonic() - began
            await self._compare(server, stretch)
            await self._close_greedy(stretch.users)
            if not (hurried or look.ended):
                await wait_for_event(self._lost, took / LOAD)

    async def _compare(self, server: str, stretch: ConnectionPage) -> None:
        """Make known what a page shows, and end what it lacks and is closed."""
        shown = {user.connection for user in stretch.users}
        known: set[Connection] = set()
        after, more = stretch.after, True
        while more:
            rows = await self._store.known(server, after, stretch.until)
            known.update(row.connection for row in rows)
            missing = [row for row in rows if row.connection not in shown]
            await self._write((), await closed_among(self._account, missing, ASKED))
            more = len(rows) == CHUNK
            after = rows[-1].connection.cid if rows else after
            known &= shown
        await self._write([user for user in stretch.users if user.connection not in known], ())

    async def _close_greedy(self, users: Iterable[User]) -> None:
        """Close MQTT connections with too many subscriptions: nats-server keeps them in memory."""
        for user in users:
            if user.subscriptions > MQTT_SUBSCRIPTIONS:
                log.warning("closed %s: %d subscriptions", user.name, user.subscriptions)
                await self._account.close(user.connection)

    async def _end_servers(self, silent: set[str]) -> None:
        """End the connections of servers that have not answered for a while."""
        moment = time.monotonic()
        self._missing = {server: self._missing.get(server, moment) for server in silent}
        for server, since in list(self._missing.items()):
            while since + GONE <= moment:
                rows = await self._store.known(server, 0, None)
                if not rows:
                    break
                await self._write((), rows)

    async def _sweep(self) -> None:
        """Make OFFLINE who spoke only over HTTP and has fallen silent."""
        async with self._writing:
            number = await self._store.sweep_http()
        if number < CHUNK:
            await asyncio.sleep(AGAIN)

    async def _notice_reconnects(self) -> None:
        """Events are lost while the connection to NATS is."""
        await asyncio.sleep(AGAIN)
        reconnects = self._account.reconnects
        if reconnects != self._system_reconnects:
            self._system_reconnects = reconnects
            self._lost.set()

    async def _write(self, opened: Sequence[User], closed: Iterable[User]) -> None:
        over = list(closed)
        for first in range(0, max(len(opened), len(over)), CHUNK):
            part = slice(first, first + CHUNK)
            async with self._writing:
                came = [user for user in opened[part] if user.connection not in self._ended]
                ids = await self._store.change(came, over[part])
            if ids:
                await self._reconnects.wake(ids, datetime.now(UTC) + SUBSCRIBES_WITHIN)
