"""Log-ins of devices that were refused: one note of each device that there is, for its people.

`tw:refused-login:{SN in capitals}` says when the last one was, over what, and what was
wrong. A door only puts it into a short list, in which tenants take turns; what is in there is
written every few seconds, once for each device. So neither the answer nor its time tells whether
there is such a device, and a storm costs what drizzle does.
"""

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from libs.common.clock import now_ms
from libs.common.contracts.auth import Way, Wrong
from libs.common.identity.device_keys import DeviceKeyCopy
from libs.common.scheduling import FairQueue, Overflow
from libs.common.store.redis import Redis, RedisError

log = logging.getLogger(__name__)

EVERY = 5.0
"""Seconds between two writings."""
MOST = 200
"""Devices of one writing, of tenants in turn."""
SHARE = 50
"""Devices of one tenant that wait; the log-ins of others are not noted."""
LARGEST = 1024
"""Bytes of a key at most."""
LIFE = 7 * 86_400
"""Seconds that a note is kept."""


class RefusedLogin(msgspec.Struct, frozen=True, rename="camel"):
    """The last log-in of a device that was refused."""

    device_id: int
    tenant: str
    at: int
    """ms."""
    over: Way
    wrong: Wrong | None = None
    """Absent of notes of older versions."""


class RefusedLogins:
    """Notes refused log-ins in Redis; best effort, a crash loses those that wait."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: dict[str, RefusedLogin] = {}
        self._queue: FairQueue[str] = FairQueue(
            "refused log-ins of devices",
            items=SHARE,
            size=SHARE * LARGEST,
            overflow=Overflow.DROP_NEWEST,
        )
        """Those of `_waiting`."""

    def note(self, device: DeviceKeyCopy, wrong: Wrong, over: Way) -> None:
        """Have it noted that a log-in as a device, which there is, was refused; never waits."""
        key = _key(device.sn)
        if key in self._waiting or self._queue.put(device.tenant, key, size=len(key)):
            self._waiting[key] = RefusedLogin(
                device.device_id, device.tenant, now_ms(), over, wrong
            )

    async def run(self) -> None:
        """Write what waits, for ever."""
        while True:
            keys = await self._queue.take(MOST, MOST * LARGEST)
            try:
                await self._write(keys)
            except (RedisError, OSError) as error:
                log.warning("refused log-ins of devices are not noted: %s", error)
            await asyncio.sleep(EVERY)

    async def write(self) -> None:
        """Write what waits; raises what Redis raises, and then it is lost."""
        await self._write(self._queue.take_now(MOST, MOST * LARGEST))

    async def _write(self, keys: Iterable[tuple[str, str]]) -> None:
        waiting = {key: self._waiting.pop(key) for _, key in keys}
        async with self._redis.pipeline(transaction=False) as pipe:
            for key, login in waiting.items():
                pipe.set(key, msgspec.json.encode(login), ex=LIFE)
            await pipe.execute()

    async def last(self, sn: str, device_id: int, tenant: str) -> RefusedLogin | None:
        """The note of this very device; None when none was refused of late."""
        raw = await self._redis.get(_key(sn))
        if raw is None:
            return None
        found = msgspec.json.decode(raw, type=RefusedLogin)
        return found if (found.device_id, found.tenant) == (device_id, tenant) else None


def _key(sn: str) -> str:
    return f"tw:refused-login:{sn.upper()}"
