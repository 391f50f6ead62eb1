"""Watches connections to nats-server, for the presence of devices.

The known connections are in MongoDB, and events of NATS change them. Events may be lost (a server
is killed, this process is disconnected), so all servers are scanned again and again, page by page:
fast after a loss, otherwise slowly. A scan alone makes no device OFFLINE: a connection that a page
lacks is checked individually.
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
from libs.common.bus.accounts import LOGIN_ACCOUNTS, MAX_MQTT_SUBSCRIPTIONS
from libs.common.contracts.auth import Connection
from libs.common.decoding import JSON_ERRORS
from libs.common.errors import Unavailable
from libs.common.jobs import cancel_and_wait, seconds_to_tick, wait_for_event
from libs.common.lru_cache import LruCache
from libs.common.scheduling.turns import IDLE_PERIOD_SECONDS
from libs.common.store.mongo import StoreError
from services.device.telemetry.ports import ReconnectListener
from services.device.telemetry.presence_store import MAX_CHANGES, PresenceStore
from services.device.telemetry.system_account import (
    ROWS_PER_ANSWER,
    ConnectedUser,
    ConnectionChange,
    SystemAccount,
    filter_closed,
)

log = logging.getLogger(__name__)

OVERLAP_ROWS = 128
"""Rows of the previous page that a page repeats."""


@dataclass(frozen=True, slots=True)
class ConnectionPage:
    """All connections of a server with `after` < cid <= `until`."""

    after: int
    until: int | None
    """None on the last page."""
    users: list[ConnectedUser]


class ConnectionScan:
    """Scans the connections of a server by ascending cid.

    Rows move to the front when connections before them close, so a page must begin at or before the
    last scanned cid; otherwise it is requested again from an earlier offset. Rows that move to the
    back, because a lower cid was authorized late, are new connections with an event of their own.
    """

    def __init__(self, account: SystemAccount, server: str) -> None:
        self._account = account
        self._server = server
        self._seen = 0
        self._position = 0
        self.ended = False

    async def next(self) -> ConnectionPage:
        """Return the next page; `ended` is set on the last one."""
        offset = max(0, self._position - OVERLAP_ROWS)
        page = await self._account.page(self._server, offset)
        while offset and (not page.number or page.first > self._seen):
            offset = max(0, offset - ROWS_PER_ANSWER)
            page = await self._account.page(self._server, offset)
        after = self._seen
        self.ended = page.number < ROWS_PER_ANSWER
        self._position = offset + page.number
        self._seen = max(after, page.last)
        users = [user for user in page.users if user.connection.cid > after]
        return ConnectionPage(after, None if self.ended else self._seen, users)


SCAN_INTERVAL_SECONDS = 5.0
"""Seconds between two scans of all servers."""
MAX_SCAN_TIME_SHARE = 0.05
"""Share of a server's time that scans may use, unless events were lost."""
RETRY_DELAY_SECONDS = 1.0
"""Seconds until a failed step is tried again, and between two checks of HTTP lifetimes."""
MAX_SERVER_SILENCE_SECONDS = 10.0
"""Seconds without an answer of a server after which its connections count as ended."""
MAX_WAITING_EVENTS = 20_000
"""Events that wait to be written; further events are dropped, and a scan finds the changes."""
CONCURRENT_CHECKS = 32
"""Maximum connections that are checked concurrently."""
RECONNECT_DELIVERY_DELAY = timedelta(milliseconds=400)
"""Delay of commands after a device connects, in which it subscribes to them."""


class PresenceWatch:
    """Keeps the connection states of devices up to date."""

    def __init__(
        self,
        *,
        system: Bus,
        store: PresenceStore,
        account: SystemAccount,
        reconnects: ReconnectListener,
        rest: float = IDLE_PERIOD_SECONDS,
    ) -> None:
        """`rest` is the pause (s) between checks of HTTP lifetimes, shorter than any of these."""
        self._system = system
        self._store = store
        self._account = account
        self._reconnects = reconnects
        self._rest = rest
        self._writing = asyncio.Lock()
        self._reset()

    def _reset(self) -> None:
        self._changes: deque[ConnectionChange] = deque()
        self._received = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost.set()
        self._ended: LruCache[Connection, None] = LruCache(MAX_WAITING_EVENTS)
        """Ended connections, which an older page may still contain."""
        self._system_reconnects = 0
        self._missing: dict[str, float] = {}
        """Monotonic time since which a server has not answered, by server."""

    async def run(self) -> None:
        """Watch until cancelled."""
        self._reset()
        subscriptions = [
            await self._system.client.subscribe(
                f"$SYS.ACCOUNT.{account}.{event}", cb=self._on_message
            )
            for account in LOGIN_ACCOUNTS
            for event in ("CONNECT", "DISCONNECT")
        ]
        jobs = (
            self._write_events,
            self._scan_all,
            self._expire_http_lifetimes,
            self._rescan_after_reconnects,
        )
        tasks = [asyncio.ensure_future(self._repeat(job)) for job in jobs]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_and_wait(*tasks)
            for subscription in subscriptions:
                if not self._system.client.is_closed:
                    await subscription.unsubscribe()

    async def _on_message(self, message: Msg) -> None:
        try:
            change = msgspec.json.decode(message.data, type=ConnectionChange)
        except JSON_ERRORS as error:
            log.warning("a system event of NATS is invalid: %s", error)
            return
        self.add(change)

    def add(self, change: ConnectionChange) -> None:
        """Queue an event; drop it if the queue is full, so that a scan is needed."""
        user = change.user
        if user is None:
            return
        if not change.is_opened:
            self._ended.put(user.connection, None)
        if len(self._changes) < MAX_WAITING_EVENTS:
            self._changes.append(change)
            self._received.set()
        else:
            self._lost.set()

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step forever; after a failure, pause and request a fast scan."""
        while True:
            try:
                await step()
            except (StoreError, NatsError, OSError, TimeoutError, Unavailable) as error:
                log.warning("presence is retried in %g s: %r", RETRY_DELAY_SECONDS, error)
                self._lost.set()
                await asyncio.sleep(RETRY_DELAY_SECONDS)

    async def _write_events(self) -> None:
        """Wait for queued events, and write up to `MAX_CHANGES` events."""
        await self._received.wait()
        changes = [self._changes.popleft() for _ in range(min(MAX_CHANGES, len(self._changes)))]
        if not self._changes:
            self._received.clear()
        last = {user.connection: change for change in changes if (user := change.user)}
        users = [(change.is_opened, user) for change in last.values() if (user := change.user)]
        await self._write_changes(
            [user for opened, user in users if opened],
            [user for opened, user in users if not opened],
        )

    async def _scan_all(self) -> None:
        """Scan all servers once, then wait until the next scan."""
        hurried = self._lost.is_set()
        self._lost.clear()
        answering = await self._account.servers()
        for server in answering:
            await self._scan(server, hurried=hurried)
        await self._end_silent_servers(await self._store.servers() - answering)
        await wait_for_event(self._lost, seconds_to_tick(SCAN_INTERVAL_SECONDS))

    async def _scan(self, server: str, *, hurried: bool) -> None:
        scan = ConnectionScan(self._account, server)
        while not scan.ended:
            began = time.monotonic()
            page = await scan.next()
            took = time.monotonic() - began
            await self._reconcile(server, page)
            await self._close_oversubscribed(page.users)
            if not (hurried or scan.ended):
                await wait_for_event(self._lost, took / MAX_SCAN_TIME_SHARE)

    async def _reconcile(self, server: str, page: ConnectionPage) -> None:
        """Add connections that a page has; end those that it lacks if they are closed."""
        page_connections = {user.connection for user in page.users}
        known_connections: set[Connection] = set()
        after, more = page.after, True
        while more:
            rows = await self._store.list_server_connections(server, after, page.until)
            known_connections.update(row.connection for row in rows)
            missing = [row for row in rows if row.connection not in page_connections]
            await self._write_changes(
                (), await filter_closed(self._account, missing, CONCURRENT_CHECKS)
            )
            more = len(rows) == MAX_CHANGES
            after = rows[-1].connection.cid if rows else after
            known_connections &= page_connections
        await self._write_changes(
            [user for user in page.users if user.connection not in known_connections], ()
        )

    async def _close_oversubscribed(self, users: Iterable[ConnectedUser]) -> None:
        """Close connections with too many MQTT subscriptions, which use server memory."""
        for user in users:
            if user.subscriptions > MAX_MQTT_SUBSCRIPTIONS:
                log.warning("%s is closed: it has %d subscriptions", user.name, user.subscriptions)
                await self._account.close(user.connection)

    async def _end_silent_servers(self, silent: set[str]) -> None:
        """End the connections of servers that are silent for `MAX_SERVER_SILENCE_SECONDS`."""
        moment = time.monotonic()
        self._missing = {server: self._missing.get(server, moment) for server in silent}
        for server, since in list(self._missing.items()):
            while since + MAX_SERVER_SILENCE_SECONDS <= moment:
                rows = await self._store.list_server_connections(server, 0, None)
                if not rows:
                    break
                await self._write_changes((), rows)

    async def _expire_http_lifetimes(self) -> None:
        """Make devices OFFLINE whose HTTP lifetime ended; rest if none ends soon."""
        if not await self._store.has_lifetime_ending_within(self._rest):
            await asyncio.sleep(self._rest)
            return
        async with self._writing:
            number = await self._store.expire_http_lifetimes()
        if number < MAX_CHANGES:
            await asyncio.sleep(RETRY_DELAY_SECONDS)

    async def _rescan_after_reconnects(self) -> None:
        """Scan again after a reconnection to NATS, during which events were lost."""
        await asyncio.sleep(seconds_to_tick(RETRY_DELAY_SECONDS))
        reconnects = self._account.reconnect_count
        if reconnects != self._system_reconnects:
            self._system_reconnects = reconnects
            self._lost.set()

    async def _write_changes(
        self, opened: Sequence[ConnectedUser], closed: Iterable[ConnectedUser]
    ) -> None:
        over = list(closed)
        for first in range(0, max(len(opened), len(over)), MAX_CHANGES):
            part = slice(first, first + MAX_CHANGES)
            async with self._writing:
                new = [user for user in opened[part] if user.connection not in self._ended]
                ids = await self._store.apply_and_list_opened(new, over[part])
            if ids:
                await self._reconnects.resume_deliveries(
                    ids, datetime.now(UTC) + RECONNECT_DELIVERY_DELAY
                )
