"""Presence of devices that speak HTTP: their last report."""

import time

from services.device.presence.store import PresenceStore
from services.device.things import Thing

LONGEST_PAUSE = 30.0


class HttpPresence:
    """Notes that a device was heard; writes at most every quarter of its life."""

    def __init__(self, store: PresenceStore, life: float) -> None:
        self._store = store
        self._life = life
        self._pause = min(LONGEST_PAUSE, life / 4)
        self._noted: dict[int, float] = {}

    async def heard(self, thing: Thing) -> None:
        """The device has just spoken."""
        moment = time.monotonic()
        if self._noted.get(thing.id, -self._pause) + self._pause <= moment:
            await self._store.heard(thing.id, self._life)
            self._noted[thing.id] = moment
