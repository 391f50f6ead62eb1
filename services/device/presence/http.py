"""Presence of devices that speak HTTP: their last report."""

import asyncio
import logging
import time
from itertools import islice

from libs.common.jobs import Beside, happened
from libs.common.store.mongo import StoreError
from services.device.presence.store import CHUNK, PresenceStore
from services.device.things import Thing

LONGEST_PAUSE = 30.0
PATIENCE = 1.0
"""Seconds that a device waits until it is noted; then it is told that its report is taken."""
AGAIN = 1.0
"""Seconds until a note that failed is tried again."""

log = logging.getLogger(__name__)


class HttpPresence:
    """Notes that devices were heard; each at most every quarter of its life.

    Those that speak while a note is being written are noted together after it. A database
    that is slow or away holds up no report: it is tried until it takes the note.
    """

    def __init__(self, store: PresenceStore, life: float) -> None:
        self._store = store
        self._life = life
        self._pause = min(LONGEST_PAUSE, life / 4)
        self._noted: dict[int, float] = {}
        self._due: dict[int, asyncio.Event] = {}
        self._beside = Beside()

    async def heard(self, thing: Thing) -> None:
        """The device has just spoken."""
        fresh = time.monotonic() - self._pause
        if thing.id not in self._due and self._noted.get(thing.id, fresh) <= fresh:
            noted = self._due[thing.id] = asyncio.Event()
            self._beside.begin("note", self._note)
            await happened(noted, PATIENCE)

    async def stop(self) -> None:
        """Leave the rest to the next reports."""
        await self._beside.stop()

    async def _note(self) -> None:
        while self._due:
            ids = list(islice(self._due, CHUNK))
            try:
                await self._store.heard(ids, self._life)
            except StoreError as error:
                log.warning("presence over HTTP waits: %r", error)
                await asyncio.sleep(AGAIN)
                continue
            self._noted.update(dict.fromkeys(ids, time.monotonic()))
            for one in ids:
                self._due.pop(one).set()
