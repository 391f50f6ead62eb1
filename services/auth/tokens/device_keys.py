"""The copies of device credentials in Redis, which the gateway and the callout read.

A copy is only ever written by a log-in that found none. It first leaves an announcement,
then reads MongoDB; whoever changes credentials in MongoDB deletes copy and announcement
after that. So a log-in that has read what is now out of date finds its announcement gone
and keeps nothing.
"""

import base64
import secrets
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from libs.common.contracts.auth import DeviceRef
from libs.common.identity.device_keys import DeviceKeyCopy, device_copy_key
from libs.common.identity.seal import Seal, SealBroken
from libs.common.store.redis import Redis

LIFE = 86_400
"""Seconds that a copy is kept."""
SHOWN = 600
"""Seconds for which the first key of a device can be shown again."""
ANNOUNCED = 10
"""Seconds within which MongoDB must have answered for the copy to be kept."""


def _announcement_key(sn: str) -> str:
    return f"tw:device-restore:{sn.upper()}"


def _first_key(sn: str) -> str:
    return f"tw:first-key:{sn.upper()}"


class FirstKeys:
    """Keeps the first keys of devices, encrypted, while they can be shown again.

    While a key is kept there is no copy of the device's credentials in Redis, so that the first
    log-in of the device is seen here and ends it.
    """

    def __init__(self, redis: Redis, secret: str) -> None:
        """`secret` is one of the service's settings, so that Redis alone reveals no key."""
        self._redis = redis
        derived = HKDF(SHA256(), 32, salt=None, info=b"thingway first device keys")
        key = base64.urlsafe_b64encode(derived.derive(secret.encode())).decode()
        self._seal = Seal(key.rstrip("="))

    async def keep(self, device: DeviceRef, key: str) -> None:
        """Keep the first key of a device for `SHOWN` seconds."""
        sealed = self._seal.seal(key, _context(device))
        await self._redis.set(_first_key(device.sn), sealed, ex=SHOWN)

    async def find(self, device: DeviceRef) -> str | None:
        """Return the first key of this very device, while it is kept."""
        sealed = await self._redis.get(_first_key(device.sn))
        if sealed is None:
            return None
        text = sealed if isinstance(sealed, str) else sealed.decode()
        try:
            return self._seal.open(text, _context(device))
        except SealBroken:
            return None

    async def drop(self, sn: str) -> None:
        """Show the first key of a device no longer."""
        await self._redis.delete(_first_key(sn))


def _context(device: DeviceRef) -> str:
    return f"{device.tenant}/{device.device_id}/{device.sn}"


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
        """Keep what was read, unless the credentials have changed since it was announced.

        Nothing is kept while the first key of the device can be shown: see `FirstKeys`.
        """
        await self._keep(
            keys=[_announcement_key(copy.sn), device_copy_key(copy.sn), _first_key(copy.sn)],
            args=[announced, msgspec.json.encode(copy), LIFE],
        )

    async def drop(self, sn: str) -> None:
        """Forget an SN, and what a log-in may be about to keep of it."""
        await self._redis.delete(device_copy_key(sn), _announcement_key(sn))
