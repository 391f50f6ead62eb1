"""Issues, revokes and checks device keys; knows the certificates that log devices in."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from libs.common.bus.subjects import is_token
from libs.common.clock import now_ms
from libs.common.contracts.auth import (
    DeviceCertificate,
    DeviceCertificateRef,
    DeviceCertificates,
    DeviceCredentials,
    DeviceIdentity,
    DeviceLogin,
    DeviceRef,
    Done,
    FirstDeviceKey,
    FirstKeyWanted,
    LastRefusedLogin,
    ListDeviceCertificates,
    Way,
    Wrong,
)
from libs.common.errors import Conflict, InvalidInput, NotFound, Unauthenticated
from libs.common.identity.device_keys import DeviceKeyCopy, RefusedLogins, device_key_hash
from libs.common.tls import PeerCertificate
from services.auth.devices.store import DeviceStore, revocation_of
from services.auth.metrics import count_login
from services.auth.revocations.service import Revoker
from services.auth.tokens.device_keys import DeviceCopies, FirstKeys

MAX_SN = 128
"""Most characters of an SN."""
MOST_CERTIFICATES = 16
"""Certificates of one device that have not expired."""
WRONG_LOGIN = "the SN or the device key is wrong"
"""One answer for an unknown device and for a wrong key."""


@dataclass(frozen=True)
class DeviceService:
    """The operations on device credentials."""

    store: DeviceStore
    copies: DeviceCopies
    first_keys: FirstKeys
    revoker: Revoker
    release: Callable[[str], Awaitable[None]]
    """Takes an SN from a device that uses it as its MQTT client id."""
    refused: RefusedLogins

    async def issue(self, device: DeviceRef) -> DeviceCredentials:
        """Make a new key; the old one is dead when this returns. Shown only here."""
        key, credentials = _made(device)
        replaced = await self.store.put(credentials)
        await self.first_keys.drop(device.sn)
        await self.release(device.sn)
        await self.revoker.apply(revocation_of(device.sn, replaced))
        return DeviceCredentials(device.sn, key)

    async def issue_first(self, device: FirstKeyWanted) -> FirstDeviceKey:
        """Make a key unless there is one; a repeatable one is shown again: see `FirstKeys`."""
        key, credentials = _made(device)
        if not await self.store.add(credentials):
            again = await self.first_keys.find(device) if device.repeatable else None
            return FirstDeviceKey(again)
        if device.repeatable:
            await self.first_keys.keep(device, key)
        await self.release(device.sn)
        await self.revoker.apply(revocation_of(device.sn, None))
        return FirstDeviceKey(key)

    async def revoke(self, device: DeviceRef) -> Done:
        """Take a device's key away; it is dead when this returns. Repeatable."""
        removed = await self.store.remove(device)
        if removed is not None:
            await self.first_keys.drop(device.sn)
            await self.revoker.apply(revocation_of(device.sn, removed))
        return Done()

    async def check(self, login: DeviceLogin) -> DeviceIdentity:
        """Say whose SN and key these are; raise `Unauthenticated`."""
        found = await self.log_in(login.sn, login.key, "HTTP")
        count_login("device", ok=found is not None)
        if found is None:
            raise Unauthenticated(WRONG_LOGIN)
        return DeviceIdentity(found.sn, found.device_id, found.tenant)

    async def log_in(self, sn: str, key: str, over: Way) -> DeviceKeyCopy | None:
        """The credentials that `key` opens: from Redis, else from MongoDB."""
        kept = await self.copies.get(sn)
        copy = kept or await self._restore(sn)
        found = self._let_in(copy, "KEY", over, right=copy is not None and copy.opens(key))
        return await self._logged_in(found, first=kept is None)

    async def add_certificate(self, certificate: DeviceCertificate) -> Done:
        """Let a certificate log its device in.

        Raises `NotFound` for an SN without credentials, `Conflict` beyond `MOST_CERTIFICATES`.
        """
        now, known = now_ms(), await self.store.certificates(certificate.sn)
        if sum(one.expires > now for one in known) >= MOST_CERTIFICATES:
            raise Conflict(f"{certificate.sn} has {MOST_CERTIFICATES} certificates: revoke one")
        if not await self.store.add_certificate(certificate, now):
            raise NotFound(f"no device with credentials has this very SN: {certificate.sn}")
        await self.revoker.apply(revocation_of(certificate.sn, None))
        return Done()

    async def revoke_certificate(self, certificate: DeviceCertificateRef) -> Done:
        """End a certificate, and its connections; raise `NotFound` for one that is not known."""
        if not await self.store.remove_certificate(certificate):
            raise NotFound(f"{certificate.sn} has no certificate {certificate.serial}")
        await self.revoker.apply(revocation_of(certificate.sn, certificate.sn))
        return Done()

    async def list_certificates(self, wanted: ListDeviceCertificates) -> DeviceCertificates:
        """The certificates of a device."""
        return DeviceCertificates(await self.store.certificates(wanted.sn))

    async def check_certificate(self, certificate: DeviceCertificateRef) -> DeviceIdentity:
        """Say whose certificate this is, which TLS has proved; raise `Unauthenticated`."""
        shown = PeerCertificate(certificate.sn, certificate.serial)
        found = await self.log_in_with(shown, "HTTP")
        count_login("device", ok=found is not None)
        if found is None:
            raise Unauthenticated("the certificate logs no device in")
        return DeviceIdentity(found.sn, found.device_id, found.tenant)

    async def log_in_with(self, certificate: PeerCertificate, over: Way) -> DeviceKeyCopy | None:
        """The credentials that a certificate belongs to, which TLS has proved."""
        kept = await self.copies.get(certificate.subject)
        copy = kept or await self._restore(certificate.subject)
        right = copy is not None and copy.knows(certificate)
        found = self._let_in(copy, "CERTIFICATE", over, right=right)
        return await self._logged_in(found, first=kept is None)

    async def _logged_in(self, found: DeviceKeyCopy | None, *, first: bool) -> DeviceKeyCopy | None:
        """Stop showing the first key of a device; `first` means that Redis had no copy of it."""
        if first and found is not None:
            await self.first_keys.drop(found.sn)
        return found

    def _let_in(
        self, copy: DeviceKeyCopy | None, wrong: Wrong, over: Way, *, right: bool
    ) -> DeviceKeyCopy | None:
        if copy is not None and not right:
            self.refused.note(copy, wrong, over)
        return copy if right else None

    async def last_refused(self, device: DeviceRef) -> LastRefusedLogin:
        """The last log-in as this device that was refused, of the last 7 days."""
        found = await self.refused.last(device.sn, device.device_id, device.tenant)
        return LastRefusedLogin(found.at, found.over, found.wrong) if found else LastRefusedLogin()

    async def _restore(self, sn: str) -> DeviceKeyCopy | None:
        announced = await self.copies.begin_restore(sn)
        found = await self.store.get(sn)
        if found is not None:
            await self.copies.finish_restore(found, announced)
        return found


def _made(device: DeviceRef) -> tuple[str, DeviceKeyCopy]:
    """A new key, and what is kept of it; raise `InvalidInput` for an SN that no login can have."""
    if len(device.sn) > MAX_SN or not is_token(device.sn):
        raise InvalidInput(
            "must be plain characters without blanks and any of . * > / + # $", field="sn"
        )
    key = secrets.token_urlsafe(24)
    return key, DeviceKeyCopy(device.sn, device.device_id, device.tenant, device_key_hash(key))
