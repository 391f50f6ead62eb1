"""Credentials of devices: what `auth` copies into Redis, and how the gateway reads it.

`tw:device:{SN in capitals}` holds the hash of the device's key and the serial numbers of its
certificates. A key is 192 random bits, so a plain SHA-256 keeps it: there is nothing to guess that
a slow hash would defend. A copy that is missing is restored from MongoDB by `rpc.auth.check_device`
and `check_device_certificate`.

`tw:refused-login:{SN in capitals}` says when the last one was, over what, and what was
wrong. A door only puts it into a short list, in which tenants take turns; what is in there is
written every few seconds, once for each device. So neither the answer nor its time tells whether
there is such a device, and a storm costs what drizzle does.
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
from libs.common.contracts.auth import DeviceCertificateRef, DeviceIdentity, DeviceLogin, Way, Wrong
from libs.common.errors import Unauthenticated
from libs.common.identity.principal import Kind, Principal
from libs.common.scheduling import FairQueue
from libs.common.store.redis import Coalescing, Redis, RedisError
from libs.common.tls import PeerCertificate

log = logging.getLogger(__name__)

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
