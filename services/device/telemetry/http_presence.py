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
"""Seconds after which a product is read anew."""
KEPT_PRODUCTS = 10_000
"""Most products that are kept."""


class Silence:
    """The limits of products; a change is known within seconds."""

    def __init__(self, products: ProductStore) -> None:
        self._products = products
        self._of: LruCache[tuple[str, str], tuple[float, float | None]] = LruCache(KEPT_PRODUCTS)

    async def life_of(self, thing: Thing) -> float | None:
        """Seconds, None where the product has no limit; raise `StoreError`."""
        key, now = (thing.tenant, thing.model), time.monotonic()
        known = self._of.get(key)
        if known is None or known[0] + FRESH <= now:
            minutes = await self._products.offline_timeout(*key)
            known = now, None if minutes is None else minutes * 60.0
            self._of.put(key, known)
        return known[1]


LONGEST_PAUSE = 30.0
PATIENCE = 1.0
"""Seconds that a device waits until it is noted; then it is told that its report is taken."""
AGAIN = 1.0
"""Seconds until a note that failed is tried again."""
KEPT = 50_000
"""Devices whose last note is remembered; one that is forgotten is noted with its next report."""
NOTES = 32
"""Notes that are written at a time, half of them of one tenant; one that fails waits again."""


class _Spoke(NamedTuple):
    moment: float
    """By the monotonic clock."""
    at: datetime


class HttpPresence:
    """Notes that devices were heard; each at most every quarter of its life.

    A database that is slow or away holds up no report, and a record that is locked no other
    device: each note is tried until it is written, or would say nothing any more.
    """

    def __init__(self, store: PresenceStore, life: float, silence: Silence) -> None:
        """`life`: seconds that devices without one of their own count as ONLINE."""
        self._store = store
        self._life = life
        self._silence = silence
        self._quiet: LruCache[int, float] = LruCache(KEPT)
        """Until when (monotonic) a device need not be noted again."""
        self._spoke: dict[int, _Spoke] = {}
        """The last time of those whose note is not written yet."""
        self._together: set[int] = set()
        """Those that are just being noted together."""
        self._noting = NamedTasks()
        self._scheduler = FairScheduler("presence over HTTP", NOTES, items=KEPT)

    async def heard(self, thing: Thing) -> None:
        """The device has just spoken; return when that is noted, or after `PATIENCE`."""
        if not self.is_noted(thing):
            moment = time.monotonic()
            self._spoke[thing.id] = _Spoke(moment, datetime.now(UTC))
            note = self._noting.begin(thing.id, partial(self._note, thing))
            if note is not None:
                await asyncio.wait([note], timeout=PATIENCE)

    async def heard_all(self, things: Iterable[Thing]) -> None:
        """The same of devices that have spoken together."""
        held = self._spoke.keys() | self._together
        tenants: dict[str, dict[int, Thing]] = defaultdict(dict)
        for one in things:
            if one.id not in held and not self.is_noted(one):
                tenants[one.tenant][one.id] = one
        notes = []
        for tenant, some in tenants.items():
            self._together |= some.keys()
            note = partial(self._note_together, tenant, some)
            notes.append(self._noting.begin(object(), note))
        if noting := [note for note in notes if note is not None]:
            await asyncio.wait(noting, timeout=PATIENCE)

    async def _note_together(self, tenant: str, things: Mapping[int, Thing]) -> None:
        """Note devices of a tenant at once; one by one, when that fails."""
        spoke = _Spoke(time.monotonic(), from_ms(now_ms()))
        lives: dict[float, list[int]] = defaultdict(list)
        try:
            for key, thing in things.items():
                lives[await self._silence.life_of(thing) or self._life].append(key)
            for life, ids in lives.items():
                async with self._scheduler.slot(tenant):
                    await self._store.heard_together(ids, spoke.at, timedelta(seconds=life))
                for key in ids:
                    self._keep_quiet(key, spoke, life)
        except (StoreError, LaneFull) as error:
            log.warning("%d devices were heard, each is noted by itself: %r", len(things), error)
            for key, thing in things.items():
                self._spoke.setdefault(key, spoke)
                self._noting.begin(key, partial(self._note, thing))
        finally:
            self._together -= things.keys()

    def _keep_quiet(self, key: int, spoke: _Spoke, life: float) -> None:
        """A device is noted with what it spoke, and need not be for a while."""
        self._quiet.put(key, spoke.moment + min(LONGEST_PAUSE, life / 4))

    def is_noted(self, thing: Thing) -> bool:
        """Whether the device was heard a short while ago, so that there is nothing to note."""
        return (self._quiet.get(thing.id) or 0.0) > time.monotonic()

    async def stop(self) -> None:
        """Leave what is not noted yet to the next reports."""
        await self._noting.stop()

    async def _note(self, thing: Thing) -> None:
        life = self._life
        while (spoke := self._spoke[thing.id]).at + timedelta(seconds=life) > datetime.now(UTC):
            try:
                life = await self._silence.life_of(thing) or self._life
                async with self._scheduler.slot(thing.tenant):
                    await self._store.heard(thing.id, spoke.at, timedelta(seconds=life))
            except (StoreError, LaneFull) as error:
                log.warning("device %d was heard, noting it waits: %r", thing.id, error)
                await asyncio.sleep(AGAIN)
            else:
                self._keep_quiet(thing.id, spoke, life)
                if self._spoke[thing.id] is spoke:
                    break
        del self._spoke[thing.id]
