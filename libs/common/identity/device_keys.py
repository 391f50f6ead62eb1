"""Device keys: what `auth` copies into Redis, and how the gateway reads it.

`tw:device:{SN in capitals}` holds the hash of the device's key. A key is 192 random bits,
so a plain SHA-256 keeps it: there is nothing to guess that a slow hash would defend. The
copy is restored from MongoDB by `rpc.auth.check_device` when it is missing.
"""

import hashlib
import hmac

import msgspec

from libs.common.bus import RpcClient
from libs.common.coalescing import Coalescing
from libs.common.contracts.auth import DeviceIdentity, DeviceLogin
from libs.common.errors import Unauthenticated
from libs.common.identity.principal import Kind, Principal
from libs.common.store.redis import Redis

CHECK = "rpc.auth.check_device"


class DeviceKeyCopy(msgspec.Struct, frozen=True, rename="camel"):
    """A device's credentials as Redis has them."""

    sn: str
    """As it was registered; look-ups ignore case."""
    device_id: int
    tenant: str
    key_hash: str

    def opens(self, key: str) -> bool:
        """Tell whether `key` is the device's, in constant time."""
        return hmac.compare_digest(self.key_hash, device_key_hash(key))


def device_key_hash(key: str) -> str:
    """The SHA-256 of a device key in hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def device_copy_key(sn: str) -> str:
    """Where the copy of a device's credentials stands."""
    return f"tw:device:{sn.upper()}"


def device_principal(sn: str, tenant: str) -> Principal:
    """The principal that a device is."""
    return Principal(kind=Kind.DEVICE, tenant=tenant, subject=sn)


class DeviceKeyReader:
    """Proves devices by SN and key: one rpc when Redis knows nothing.

    Those of one event-loop turn share a round trip to Redis.
    """

    def __init__(self, redis: Redis, rpc: RpcClient) -> None:
        self._copies = Coalescing(redis.mget)
        self._rpc = rpc
        self._decoder = msgspec.json.Decoder(DeviceKeyCopy)

    async def identity(self, sn: str, key: str) -> Principal | None:
        """The device's principal, None when there is no such device or the key is wrong.

        Raises what Redis raises, and `Unavailable` when `auth` is needed and silent.
        """
        raw = await self._copies.answer(device_copy_key(sn))
        if raw is not None:
            copy = self._decoder.decode(raw)
            return device_principal(copy.sn, copy.tenant) if copy.opens(key) else None
        try:
            known = await self._rpc.call(CHECK, DeviceLogin(sn, key), DeviceIdentity)
        except Unauthenticated:
            return None
        return device_principal(known.sn, known.tenant)
