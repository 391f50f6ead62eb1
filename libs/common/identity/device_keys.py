"""Credentials of devices: what `auth` copies into Redis, and how the gateway reads it.

`tw:device:{SN in capitals}` holds the hash of the device's key and the serial numbers of its
certificates. A key is 192 random bits, so a plain SHA-256 keeps it: there is nothing to guess that
a slow hash would defend. A copy that is missing is restored from MongoDB by `rpc.auth.check_device`
and `check_device_certificate`.
"""

import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import msgspec

from libs.common.bus import RpcClient
from libs.common.contracts.auth import DeviceCertificateRef, DeviceIdentity, DeviceLogin, Wrong
from libs.common.errors import Unauthenticated
from libs.common.identity.principal import Kind, Principal
from libs.common.store.redis import Coalescing, Redis
from libs.common.tls import PeerCertificate

CHECK = "rpc.auth.check_device"
CHECK_CERTIFICATE = "rpc.auth.check_device_certificate"


class DeviceKeyCopy(msgspec.Struct, frozen=True, rename="camel"):
    """A device's credentials as Redis has them."""

    sn: str
    """As it was registered; look-ups ignore case."""
    device_id: int
    tenant: str
    key_hash: str
    certificates: list[str] = []
    """Serial numbers of the certificates that log it in, hexadecimal."""

    def opens(self, key: str) -> bool:
        """Tell whether `key` is the device's, in constant time."""
        return hmac.compare_digest(self.key_hash, device_key_hash(key))

    def knows(self, certificate: PeerCertificate) -> bool:
        """Tell whether `certificate` is one of the device's, in the very spelling of its SN."""
        return self.sn == certificate.subject and certificate.serial in self.certificates


def device_key_hash(key: str) -> str:
    """The SHA-256 of a device key in hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def device_copy_key(sn: str) -> str:
    """Where the copy of a device's credentials stands."""
    return f"tw:device:{sn.upper()}"


def device_principal(sn: str, tenant: str) -> Principal:
    """The principal that a device is."""
    return Principal(kind=Kind.DEVICE, tenant=tenant, subject=sn)


Refused = Callable[[DeviceKeyCopy, Wrong], None]
"""Is told of a device as which somebody came with a wrong key or certificate; never waits."""


def _forget(_: DeviceKeyCopy, __: Wrong) -> None:
    """Tell nobody."""


class DeviceKeyReader:
    """Proves devices by key or certificate: one rpc when Redis knows nothing.

    Those of one event-loop turn share a round trip to Redis.
    """

    def __init__(self, redis: Redis, rpc: RpcClient, refused: Refused = _forget) -> None:
        self._refused = refused
        self._copies = Coalescing(redis.mget)
        self._rpc = rpc
        self._decoder = msgspec.json.Decoder(DeviceKeyCopy)

    async def identity(self, sn: str, key: str) -> Principal | None:
        """The device's principal, None when there is no such device or the key is wrong.

        Raises what Redis raises, and `Unavailable` when `auth` is needed and silent.
        """
        copy = await self._copy(sn)
        if copy is None:
            return await self._ask(CHECK, DeviceLogin(sn, key))
        return self._let_in(copy, "KEY", right=copy.opens(key))

    async def identity_of(self, certificate: PeerCertificate) -> Principal | None:
        """The principal of the device that came with `certificate`, which TLS has proved.

        None when the device is gone or the certificate was revoked; raises as `identity` does.
        """
        copy = await self._copy(certificate.subject)
        if copy is None:
            return await self._ask(CHECK_CERTIFICATE, DeviceCertificateRef(*certificate))
        return self._let_in(copy, "CERTIFICATE", right=copy.knows(certificate))

    def _let_in(self, copy: DeviceKeyCopy, wrong: Wrong, *, right: bool) -> Principal | None:
        if right:
            return device_principal(copy.sn, copy.tenant)
        self._refused(copy, wrong)
        return None

    async def _copy(self, sn: str) -> DeviceKeyCopy | None:
        raw = await self._copies.answer(device_copy_key(sn))
        return None if raw is None else self._decoder.decode(raw)

    async def _ask(self, subject: str, login: Any) -> Principal | None:
        try:
            known = await self._rpc.call(subject, login, DeviceIdentity)
        except Unauthenticated:
            return None
        return device_principal(known.sn, known.tenant)
