"""The copies of device credentials in Redis, which the gateway and the callout read.

A copy is only ever written by a log-in that found none. It first leaves an announcement,
then reads MongoDB; whoever changes credentials in MongoDB deletes copy and announcement
after that. So a log-in that has read what is now out of date finds its announcement gone
and keeps nothing.
"""

import secrets
from pathlib import Path

import msgspec

from libs.common.identity.device_keys import DeviceKeyCopy, device_copy_key
from libs.common.store.redis import Redis

LIFE = 86_400
"""Seconds that a copy is kept."""
ANNOUNCED = 10
"""Seconds within which MongoDB must have answered for the copy to be kept."""


def _announcement_key(sn: str) -> str:
    return f"tw:device-restore:{sn.upper()}"


class DeviceCopies:
    """Reads, restores and drops the copies."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._keep = redis.register_script(
            Path(__file__).with_name("keep_device_key.lua").read_text()
        )

    async def get(self, sn: str) -> DeviceKeyCopy | None:
        """The copy of an SN."""
        raw = await self._redis.get(device_copy_key(sn))
        return None if raw is None else msgspec.json.decode(raw, type=DeviceKeyCopy)

    async def begin_restore(self, sn: str) -> str:
        """Announce that MongoDB is about to be read; return what to finish with."""
        announced = secrets.token_hex(8)
        await self._redis.set(_announcement_key(sn), announced, ex=ANNOUNCED)
        return announced

    async def finish_restore(self, copy: DeviceKeyCopy, announced: str) -> None:
        """Keep what was read, unless the credentials have changed since it was announced."""
        await self._keep(
            keys=[_announcement_key(copy.sn), device_copy_key(copy.sn)],
            args=[announced, msgspec.json.encode(copy), LIFE],
        )

    async def drop(self, sn: str) -> None:
        """Forget an SN, and what a log-in may be about to keep of it."""
        await self._redis.delete(device_copy_key(sn), _announcement_key(sn))
