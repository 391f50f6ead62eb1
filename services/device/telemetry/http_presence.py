"""Presence of devices that report over HTTP."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from libs.common.clock import from_ms, now_ms
from libs.common.jobs import NamedTasks
from libs.common.lru_cache import LruCache
from libs.common.scheduling import FairScheduler, LaneFull
from libs.common.store.mongo import StoreError
from services.device.telemetry.presence_store import PresenceStore
from services.device.things.model import Thing
from services.device.things.product_store import ProductStore

log = logging.getLogger(__name__)

FRESH = 5.0
"""Seconds that the offline timeout of a product is cached."""
KEPT_PRODUCTS = 10_000
"""Cached products."""


class OfflineTimeouts:
    """Caches the offline timeouts of products for some seconds."""

    def __init__(self, products: ProductStore) -> None:
        self._products = products
        self._of: LruCache[tuple[str, str], tuple[float, float | None]] = LruCache(KEPT_PRODUCTS)

    async def find_lifetime(self, thing: Thing) -> float | None:
        """Return the product's timeout in s, None without one; raise `StoreError`."""
        key, now = (thing.tenant, thing.model), time.monotonic()
        known = self._of.get(key)
        if known is None or known[0] + FRESH <= now:
            minutes = await self._products.find_offline_timeout(*key)
            known = now, None if minutes is None else minutes * 60.0
            self._of.put(key, known)
        return known[1]


LONGEST_PAUSE = 30.0
"""Seconds between two records of one device."""
MAX_WAIT = 1.0
"""Seconds that a report waits until the contact is recorded."""
RETRY_DELAY = 1.0
"""Seconds until a failed record is tried again."""
KEPT = 50_000
"""Devices whose last record is cached; others are recorded with their next report."""
CONCURRENT_WRITES = 32
"""Concurrent writes, half of them for one tenant."""


class _Contact(NamedTuple):
    moment: float
    """By the monotonic clock."""
    at: datetime


class HttpPresence:
    """Records contacts of devices, at most once in a quarter of a device's lifetime.

    A slow or unavailable database delays no report, and a locked record no other device: each
    record is tried until it succeeds or is outdated.
    """

    def __init__(self, store: PresenceStore, life: float, timeouts: OfflineTimeouts) -> None:
        """Construct it; `life` is the lifetime in seconds of devices without their own."""
        self._store = store
        self._life = life
        self._timeouts = timeouts
        self._quiet: LruCache[int, float] = LruCache(KEPT)
        """Until when (monotonic) a device need not be recorded again."""
        self._contacts: dict[int, _Contact] = {}
        """The last contacts that are not recorded yet."""
        self._together: set[int] = set()
        """Devices that are being recorded together."""
        self._tasks = NamedTasks()
        self._scheduler = FairScheduler("presence over HTTP", CONCURRENT_WRITES, items=KEPT)

    async def record_contact(self, thing: Thing) -> None:
        """Record that a device sent something; return when stored, or after `MAX_WAIT`."""
        if not self.is_recorded(thing):
            moment = time.monotonic()
            self._contacts[thing.id] = _Contact(moment, datetime.now(UTC))
            task = self._tasks.start(thing.id, partial(self._record, thing))
            if task is not None:
                await asyncio.wait([task], timeout=MAX_WAIT)

    async def record_contacts(self, things: Iterable[Thing]) -> None:
        """Record that several devices sent something."""
        pending = self._contacts.keys() | self._together
        tenants: dict[str, dict[int, Thing]] = defaultdict(dict)
        for thing in things:
            if thing.id not in pending and not self.is_recorded(thing):
                tenants[thing.tenant][thing.id] = thing
        begun = []
        for tenant, by_id in tenants.items():
            self._together |= by_id.keys()
            record = partial(self._record_together, tenant, by_id)
            begun.append(self._tasks.start(object(), record))
        if tasks := [task for task in begun if task is not None]:
            await asyncio.wait(tasks, timeout=MAX_WAIT)

    async def _record_together(self, tenant: str, things: Mapping[int, Thing]) -> None:
        """Record devices of a tenant together; one by one if that fails."""
        contact = _Contact(time.monotonic(), from_ms(now_ms()))
        lives: dict[float, list[int]] = defaultdict(list)
        try:
            for key, thing in things.items():
                lives[await self._timeouts.find_lifetime(thing) or self._life].append(key)
            for life, ids in lives.items():
                async with self._scheduler.slot(tenant):
                    await self._store.record_contacts(ids, contact.at, timedelta(seconds=life))
                for key in ids:
                    self._keep_quiet(key, contact, life)
        except (StoreError, LaneFull) as error:
            log.warning(
                "contacts of %d devices could not be recorded together: %r", len(things), error
            )
            for key, thing in things.items():
                self._contacts.setdefault(key, contact)
                self._tasks.start(key, partial(self._record, thing))
        finally:
            self._together -= things.keys()

    def _keep_quiet(self, key: int, contact: _Contact, life: float) -> None:
        self._quiet.put(key, contact.moment + min(LONGEST_PAUSE, life / 4))

    def is_recorded(self, thing: Thing) -> bool:
        """Return whether a contact was recorded recently enough."""
        return (self._quiet.get(thing.id) or 0.0) > time.monotonic()

    async def stop(self) -> None:
        """Stop; contacts that are not recorded are lost until the next reports."""
        await self._tasks.stop()

    async def _record(self, thing: Thing) -> None:
        life = self._life
        while (contact := self._contacts[thing.id]).at + timedelta(seconds=life) > datetime.now(
            UTC
        ):
            try:
                life = await self._timeouts.find_lifetime(thing) or self._life
                async with self._scheduler.slot(thing.tenant):
                    await self._store.record_contact(thing.id, contact.at, timedelta(seconds=life))
            except (StoreError, LaneFull) as error:
                log.warning("a contact of device %d is not recorded yet: %r", thing.id, error)
                await asyncio.sleep(RETRY_DELAY)
            else:
                self._keep_quiet(thing.id, contact, life)
                if self._contacts[thing.id] is contact:
                    break
        del self._contacts[thing.id]
