"""Watches connections, in one replica (a lease), and wakes the commands of who comes back.

Events of NATS may be lost (a server killed, ourselves away), so the picture is drawn anew
from the servers at the start, after every reconnection and once in a while.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from libs.common.bus import Bus
from libs.common.store.mongo import StoreError
from services.device.commands.model import now
from services.device.commands.store import CommandStore
from services.device.presence.connections import (
    ACCOUNT,
    Change,
    SystemAccount,
    Tracker,
    next_changes,
)
from services.device.presence.store import PresenceStore

log = logging.getLogger(__name__)

RECONCILE = 15.0
"""Seconds between two full pictures."""
SWEEP = 1.0
"""Seconds between looks for HTTP devices that have fallen silent."""
SUBSCRIBES_WITHIN = timedelta(milliseconds=400)
"""A device that has just connected gets this long to subscribe before commands are sent."""


class PresenceWatch:
    """Keeps connection states true."""

    def __init__(self, *, system: Bus, store: PresenceStore, commands: CommandStore) -> None:
        self._system = system
        self._account = SystemAccount(system)
        self._store = store
        self._commands = commands
        self._tracker = Tracker()
        self._changes: asyncio.Queue[Change] = asyncio.Queue()
        self._connects = -1
        self._reconciled = 0.0
        self._swept = 0.0

    async def run(self) -> None:
        """Watch for ever."""
        self._begin_anew()
        subscriptions = [
            await self._system.client.subscribe(f"$SYS.ACCOUNT.{ACCOUNT}.{what}", cb=self._hear)
            for what in ("CONNECT", "DISCONNECT")
        ]
        try:
            while True:
                await self._patiently(self._step)
        finally:
            for subscription in subscriptions:
                if not self._system.client.is_closed:
                    await subscription.unsubscribe()

    async def _hear(self, message: Msg) -> None:
        try:
            self._changes.put_nowait(msgspec.json.decode(message.data, type=Change))
        except msgspec.DecodeError as error:
            log.warning("a system event of NATS cannot be read: %s", error)

    async def _patiently(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except (StoreError, NatsError, OSError, TimeoutError) as error:
            log.warning("presence waits: %r", error)
            self._begin_anew()
            await asyncio.sleep(SWEEP)

    def _begin_anew(self) -> None:
        """Forget the picture, because the database may not show it; draw it at the next step."""
        self._tracker.replace({})
        self._connects = -1

    async def _step(self) -> None:
        reconnects = self._system.client.stats["reconnects"]
        if reconnects != self._connects or time.monotonic() > self._reconciled + RECONCILE:
            await self._reconcile()
            self._connects = reconnects
        changes = await next_changes(self._changes, SWEEP)
        touched = self._tracker.apply(changes)
        if touched:
            connected = {sn for sn in touched if self._tracker.is_connected(sn)}
            await self._store.set_offline(touched - connected)
            came = {change.sn.upper() for change in changes if change.sn and not change.reason}
            await self._welcome(connected & came)
        if time.monotonic() > self._swept + SWEEP:
            self._swept = time.monotonic()
            await self._store.sweep_http(self._tracker.connected)

    async def _reconcile(self) -> None:
        before = self._tracker.connected
        self._tracker.replace(await self._account.connections())
        self._reconciled = time.monotonic()
        await self._store.set_others_offline(self._tracker.connected)
        await self._welcome(self._tracker.connected - before)

    async def _welcome(self, sns: set[str]) -> None:
        ids = await self._store.set_online(sns)
        if ids:
            await self._commands.wake(ids, now() + SUBSCRIBES_WITHIN)
