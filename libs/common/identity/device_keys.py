"""Credentials of devices, which `auth` copies into Redis for the gateway.

`tw:device:{SN in capitals}` has the hash of the device's key and the serial numbers of its
certificates. A key is 192 random bits, so a plain SHA-256 suffices: a slow hash protects only
guessable secrets. `rpc.auth.check_device` and `check_device_certificate` restore a missing copy
from MongoDB.
`tw:refused-login:{SN in capitals}` has time, protocol and reason of the last rejected login. The
process that rejects a login only adds it to a short queue, in which tenants take turns. Every few
seconds, queued entries are written, one per device. Hence neither the answer nor its timing reveals
whether a device exists, and the cost does not depend on the number of logins.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from libs.common.bus import RpcClient
from libs.common.clock import now_ms
from libs.common.contracts.auth import (
    DeviceCertificateRef,
    DeviceIdentity,
    DeviceLogin,
    LoginFault,
    LoginProtocol,
)
from libs.common.errors import Unauthenticated
from libs.common.identity.principal import Principal, PrincipalKind
from libs.common.scheduling import FairQueue
from libs.common.store.redis import Redis, RedisError, RequestBatcher
from libs.common.tls import PeerCertificate

log = logging.getLogger(__name__)

CHECK_KEY_SUBJECT = "rpc.auth.check_device"
CHECK_CERTIFICATE_SUBJECT = "rpc.auth.check_device_certificate"


class DeviceKeyCopy(msgspec.Struct, frozen=True, rename="camel"):
    """A device's credentials in Redis."""

    sn: str
    """The SN in its registered spelling; look-ups ignore case."""
    device_id: int
    tenant: str
    key_hash: str
    certificates: list[str] = []
    """Serial numbers of the device's certificates, hexadecimal."""

    def matches_key(self, key: str) -> bool:
        """Return whether `key` is the device's key, in constant time."""
        return hmac.compare_digest(self.key_hash, device_key_hash(key))

    def matches_certificate(self, certificate: PeerCertificate) -> bool:
        """Return whether the device has `certificate`, with the exact spelling of its SN."""
        return self.sn == certificate.subject and certificate.serial in self.certificates


def device_key_hash(key: str) -> str:
    """Return the SHA-256 of a device key in hexadecimal."""
    return hashlib.sha256(key.encode()).hexdigest()


def device_credentials_key(sn: str) -> str:
    """Return the Redis key of a device's credentials."""
    return f"tw:device:{sn.upper()}"


def device_principal(sn: str, tenant: str) -> Principal:
    """Return the principal of a device."""
    return Principal(kind=PrincipalKind.DEVICE, tenant=tenant, subject=sn)


OnRejectedLogin = Callable[[DeviceKeyCopy, LoginFault], None]
"""Called with a device after a login with a wrong key or certificate; must not block."""


def _ignore(_: DeviceKeyCopy, __: LoginFault) -> None:
    """Ignore a rejected login."""


class DeviceKeyReader:
    """Authenticates devices by key or certificate, with one rpc if Redis has no copy.

    Look-ups in one iteration of the event loop share a round trip to Redis.
    """

    def __init__(
        self, redis: Redis, rpc: RpcClient, on_rejected: OnRejectedLogin = _ignore
    ) -> None:
        self._on_rejected = on_rejected
        self._copies = RequestBatcher(redis.mget)
        self._rpc = rpc
        self._decoder = msgspec.json.Decoder(DeviceKeyCopy)

    async def authenticate(self, sn: str, key: str) -> Principal | None:
        """Return the principal of a device, or None for an unknown device or wrong key.

        Raises errors of Redis, and `Unavailable` if `auth` is needed and does not answer.
        """
        copy = await self._copy(sn)
        if copy is None:
            return await self._request(CHECK_KEY_SUBJECT, DeviceLogin(sn, key))
        return self._admit(copy, "KEY", right=copy.matches_key(key))

    async def authenticate_certificate(self, certificate: PeerCertificate) -> Principal | None:
        """Return the principal of the device of a certificate that TLS has verified.

        Returns None if the device is deleted or the certificate revoked. Raises the errors of
        `authenticate`.
        """
        copy = await self._copy(certificate.subject)
        if copy is None:
            return await self._request(
                CHECK_CERTIFICATE_SUBJECT, DeviceCertificateRef(*certificate)
            )
        return self._admit(copy, "CERTIFICATE", right=copy.matches_certificate(certificate))

    def _admit(self, copy: DeviceKeyCopy, wrong: LoginFault, *, right: bool) -> Principal | None:
        if right:
            return device_principal(copy.sn, copy.tenant)
        self._on_rejected(copy, wrong)
        return None

    async def _copy(self, sn: str) -> DeviceKeyCopy | None:
        raw = await self._copies.answer(device_credentials_key(sn))
        return None if raw is None else self._decoder.decode(raw)

    async def _request(self, subject: str, login: Any) -> Principal | None:
        try:
            identity = await self._rpc.call(subject, login, DeviceIdentity)
        except Unauthenticated:
            return None
        return device_principal(identity.sn, identity.tenant)


WRITE_PERIOD_SECONDS = 5.0
"""Seconds between two writes."""
MAX_DEVICES_PER_WRITE = 200
"""Maximum devices of a write; tenants take turns."""
MAX_WAITING_PER_TENANT = 50
"""Waiting devices per tenant; further rejected logins are not recorded."""
MAX_KEY_BYTES = 1024
"""Maximum bytes of the Redis key of a rejected login."""
RETENTION_SECONDS = 7 * 86_400
"""Seconds for which a record is kept."""


class RejectedLogin(msgspec.Struct, frozen=True, rename="camel"):
    """The last rejected login of a device."""

    device_id: int
    tenant: str
    at: int
    """ms."""
    over: LoginProtocol
    wrong: LoginFault | None = None
    """Absent in records of version 0.1."""


class RejectedLogins:
    """Records rejected logins in Redis; a crash loses the waiting ones."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: dict[str, RejectedLogin] = {}
        self._queue: FairQueue[str] = FairQueue(
            "refused log-ins of devices",
            items=MAX_WAITING_PER_TENANT,
            size=MAX_WAITING_PER_TENANT * MAX_KEY_BYTES,
        )
        """Keys of the waiting rejected logins, in a fair order of tenants."""

    def record(self, device: DeviceKeyCopy, wrong: LoginFault, over: LoginProtocol) -> None:
        """Record that a login of an existing device was rejected; does not block."""
        key = _rejected_login_key(device.sn)
        if key in self._waiting or self._queue.put(device.tenant, key, size=len(key)):
            self._waiting[key] = RejectedLogin(
                device.device_id, device.tenant, now_ms(), over, wrong
            )

    async def run(self) -> None:
        """Write waiting records, for ever."""
        while True:
            keys = await self._queue.pop_batch(
                MAX_DEVICES_PER_WRITE, MAX_DEVICES_PER_WRITE * MAX_KEY_BYTES
            )
            try:
                await self._write(keys)
            except (RedisError, OSError) as error:
                log.warning("rejected logins of devices cannot be recorded: %s", error)
            await asyncio.sleep(WRITE_PERIOD_SECONDS)

    async def write(self) -> None:
        """Write up to `MAX_DEVICES_PER_WRITE` waiting records.

        Raises errors of Redis, after which these records are lost.
        """
        await self._write(
            self._queue.pop_waiting(MAX_DEVICES_PER_WRITE, MAX_DEVICES_PER_WRITE * MAX_KEY_BYTES)
        )

    async def _write(self, keys: Iterable[tuple[str, str]]) -> None:
        waiting = {key: self._waiting.pop(key) for _, key in keys}
        async with self._redis.pipeline(transaction=False) as pipe:
            for key, login in waiting.items():
                pipe.set(key, msgspec.json.encode(login), ex=RETENTION_SECONDS)
            await pipe.execute()

    async def last(self, sn: str, device_id: int, tenant: str) -> RejectedLogin | None:
        """Return the last rejected login of this device; None without a recent one."""
        raw = await self._redis.get(_rejected_login_key(sn))
        if raw is None:
            return None
        rejected_login = msgspec.json.decode(raw, type=RejectedLogin)
        return (
            rejected_login
            if (rejected_login.device_id, rejected_login.tenant) == (device_id, tenant)
            else None
        )


def _rejected_login_key(sn: str) -> str:
    return f"tw:refused-login:{sn.upper()}"
