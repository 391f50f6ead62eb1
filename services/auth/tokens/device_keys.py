"""Copies of device credentials in Redis, which the gateway and the callout read.

Only a login that finds no copy writes one. It stores an announcement before it reads MongoDB. A
change of credentials in MongoDB deletes the copy and the announcement afterwards. So a login that
has read outdated credentials finds its announcement missing and stores no copy.
"""

import base64
import secrets
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from libs.common.contracts.auth import DeviceRef
from libs.common.identity.device_keys import DeviceKeyCopy, device_credentials_key
from libs.common.identity.seal import Seal, SealBroken
from libs.common.store.redis import Redis

COPY_LIFETIME_SECONDS = 86_400
"""Lifetime of a copy, in seconds."""
FIRST_KEY_LIFETIME_SECONDS = 600
"""Seconds in which the first key of a device can be shown again."""
ANNOUNCEMENT_LIFETIME_SECONDS = 10
"""Seconds within which MongoDB must respond, otherwise no copy is stored."""


def _announcement_key(sn: str) -> str:
    return f"tw:device-restore:{sn.upper()}"


def _first_key_key(sn: str) -> str:
    return f"tw:first-key:{sn.upper()}"


class FirstKeyStore:
    """Encrypted first keys of devices, while they can be shown again.

    While a first key is stored, Redis has no copy of the device's credentials. So the first login
    of the device reaches this service, which then drops the key.
    """

    def __init__(self, redis: Redis, secret: str) -> None:
        """Derive the cipher from `secret`, a setting, so that Redis alone reveals no key."""
        self._redis = redis
        derived = HKDF(SHA256(), 32, salt=None, info=b"thingway first device keys")
        key = base64.urlsafe_b64encode(derived.derive(secret.encode())).decode()
        self._seal = Seal(key.rstrip("="))

    async def store(self, device: DeviceRef, key: str) -> None:
        """Store the first key of a device for `FIRST_KEY_LIFETIME_SECONDS`."""
        sealed = self._seal.seal(key, _seal_context(device))
        await self._redis.set(_first_key_key(device.sn), sealed, ex=FIRST_KEY_LIFETIME_SECONDS)

    async def find(self, device: DeviceRef) -> str | None:
        """Return the first key of a device while it is stored, else None."""
        sealed = await self._redis.get(_first_key_key(device.sn))
        if sealed is None:
            return None
        text = sealed if isinstance(sealed, str) else sealed.decode()
        try:
            return self._seal.open(text, _seal_context(device))
        except SealBroken:
            return None

    async def delete(self, sn: str) -> None:
        """Delete the first key of a device."""
        await self._redis.delete(_first_key_key(sn))


def _seal_context(device: DeviceRef) -> str:
    return f"{device.tenant}/{device.device_id}/{device.sn}"


class DeviceKeyCopyStore:
    """Reads, restores and drops the copies of device credentials in Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._keep = redis.register_script(
            Path(__file__).with_name("keep_device_key.lua").read_text()
        )

    async def get(self, sn: str) -> DeviceKeyCopy | None:
        """Return the copy of the credentials of an SN; None without a copy."""
        raw = await self._redis.get(device_credentials_key(sn))
        return None if raw is None else msgspec.json.decode(raw, type=DeviceKeyCopy)

    async def announce_restore(self, sn: str) -> str:
        """Announce a read from MongoDB; return the id for `store_if_announced`."""
        announced = secrets.token_hex(8)
        await self._redis.set(_announcement_key(sn), announced, ex=ANNOUNCEMENT_LIFETIME_SECONDS)
        return announced

    async def store_if_announced(self, copy: DeviceKeyCopy, announced: str) -> None:
        """Store the copy unless the credentials have changed since the announcement.

        Nothing is stored while the device's first key can be shown (`FirstKeyStore`).
        """
        await self._keep(
            keys=[
                _announcement_key(copy.sn),
                device_credentials_key(copy.sn),
                _first_key_key(copy.sn),
            ],
            args=[announced, msgspec.json.encode(copy), COPY_LIFETIME_SECONDS],
        )

    async def delete(self, sn: str) -> None:
        """Delete the copy and the announcement of an SN."""
        await self._redis.delete(device_credentials_key(sn), _announcement_key(sn))
