"""Device credentials: keys and certificates that log devices in, over MQTT, NATS and HTTP.

`device_credentials` in MongoDB: `{_id, sn, tenant, deviceId, keyHash, certificates: [{serial,
expires}]}`, `_id` is the SN in capitals, `expires` is in ms. A change of them intends its
revocation.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from libs.common.bus import RpcServer
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
from libs.common.identity import Kind
from libs.common.identity.device_keys import DeviceKeyCopy, RefusedLogins, device_key_hash
from libs.common.store.mongo import Document, DuplicateKey, Mongo, Session
from libs.common.tls import PeerCertificate
from services.auth.logins import count_login
from services.auth.revocations import Revocation, RevocationStore, Revoker
from services.auth.tokens.device_keys import DeviceCopies, FirstKeys


def revocation_of(sn: str, registered: str | None) -> Revocation:
    """Forget what Redis knows of an SN; end its connections, when it was registered, as what."""
    return Revocation(Kind.DEVICE, sn.upper(), user=registered or "")


class DeviceStore:
    """The collection `device_credentials`."""

    def __init__(self, mongo: Mongo, revocations: RevocationStore) -> None:
        self._mongo = mongo
        self._credentials = mongo.database["device_credentials"]
        self._revocations = revocations

    async def put(self, credentials: DeviceKeyCopy) -> str | None:
        """Set the credentials of an SN; return how it was registered, None when it was not.

        Raises `Conflict` when another tenant has the SN.
        """

        async def put_credentials(session: Session) -> str | None:
            before = await self._credentials.find_one_and_update(
                {"_id": credentials.sn.upper(), "tenant": credentials.tenant},
                {"$set": _fields(credentials)},
                upsert=True,
                session=session,
            )
            return await self._revoke(before, session)

        try:
            return await self._mongo.transaction(put_credentials)
        except DuplicateKey as error:
            raise Conflict(
                f"the SN {credentials.sn} has credentials elsewhere", field="sn"
            ) from error

    async def add(self, credentials: DeviceKeyCopy) -> bool:
        """Set the credentials of an SN that has none; False when it has some."""
        identity = {"_id": credentials.sn.upper(), "tenant": credentials.tenant}
        try:
            await self._credentials.insert_one(identity | _fields(credentials))
        except DuplicateKey:
            return False
        return True

    async def remove(self, device: DeviceRef) -> str | None:
        """Remove the credentials of this very device; return how it was registered."""

        async def delete_credentials(session: Session) -> str | None:
            before = await self._credentials.find_one_and_delete(
                {
                    "_id": device.sn.upper(),
                    "tenant": device.tenant,
                    "deviceId": device.device_id,
                },
                session=session,
            )
            return await self._revoke(before, session)

        return await self._mongo.transaction(delete_credentials)

    async def add_certificate(self, certificate: DeviceCertificate, now: int) -> bool:
        """Let a certificate log its device in; False when no such SN has credentials.

        Those that have expired by `now` (ms) are forgotten.
        """
        new = {"serial": certificate.serial, "expires": certificate.expires}
        others = {
            "$filter": {
                "input": {"$ifNull": ["$certificates", []]},
                "cond": {
                    "$and": [
                        {"$gt": ["$$this.expires", now]},
                        {"$ne": ["$$this.serial", certificate.serial]},
                    ]
                },
            }
        }
        found = await self._credentials.update_one(
            {"_id": certificate.sn.upper(), "sn": certificate.sn},
            [{"$set": {"certificates": {"$concatArrays": [[new], others]}}}],
        )
        return found.matched_count > 0

    async def remove_certificate(self, certificate: DeviceCertificateRef) -> bool:
        """Take a certificate from its device; False when it has no such one."""

        async def pull_certificate(session: Session) -> bool:
            serial = {"serial": certificate.serial}
            before = await self._credentials.find_one_and_update(
                {"_id": certificate.sn.upper(), "certificates": {"$elemMatch": serial}},
                {"$pull": {"certificates": serial}},
                session=session,
            )
            return await self._revoke(before, session) is not None

        return await self._mongo.transaction(pull_certificate)

    async def certificates(self, sn: str) -> list[DeviceCertificate]:
        """The certificates of an SN, the latest first; none when it has no credentials."""
        found = await self._credentials.find_one({"_id": sn.upper()}) or {}
        return [DeviceCertificate(sn, **one) for one in found.get("certificates", [])]

    async def _revoke(self, before: Document | None, session: Session) -> str | None:
        if before is None:
            return None
        sn: str = before["sn"]
        await self._revocations.add(before["tenant"], revocation_of(sn, sn), session)
        return sn

    async def get(self, sn: str) -> DeviceKeyCopy | None:
        """The credentials of an SN."""
        found = await self._credentials.find_one({"_id": sn.upper()})
        if found is None:
            return None
        serials = [one["serial"] for one in found.get("certificates", [])]
        return DeviceKeyCopy(
            found["sn"], found["deviceId"], found["tenant"], found["keyHash"], serials
        )


def _fields(credentials: DeviceKeyCopy) -> Document:
    return {
        "sn": credentials.sn,
        "deviceId": credentials.device_id,
        "keyHash": credentials.key_hash,
    }


MAX_SN = 128
"""Most characters of an SN."""
MOST_CERTIFICATES = 16
"""Certificates of one device that have not expired."""
WRONG_LOGIN = "the SN or the device key is wrong"
"""One answer for an unknown device and for a wrong key."""


class ClientIdRegistry(Protocol):
    """Knows which MQTT client id belongs to which device."""

    async def release(self, client_id: str) -> None:
        """Take an SN from a device that uses it as its MQTT client id."""
        ...


@dataclass(frozen=True)
class DeviceService:
    """The operations on device credentials."""

    store: DeviceStore
    copies: DeviceCopies
    first_keys: FirstKeys
    revoker: Revoker
    client_ids: ClientIdRegistry
    refused: RefusedLogins

    async def issue(self, device: DeviceRef) -> DeviceCredentials:
        """Make a new key; the old one is dead when this returns. Shown only here."""
        key, credentials = _made(device)
        replaced = await self.store.put(credentials)
        await self.first_keys.drop(device.sn)
        await self.client_ids.release(device.sn)
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
        await self.client_ids.release(device.sn)
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
        return _identity(await self.log_in(login.sn, login.key, "HTTP"), WRONG_LOGIN)

    async def log_in(self, sn: str, key: str, over: Way) -> DeviceKeyCopy | None:
        """The credentials that `key` opens: from Redis, else from MongoDB."""
        return await self._log_in(sn, "KEY", over, lambda copy: copy.opens(key))

    async def log_in_with(self, certificate: PeerCertificate, over: Way) -> DeviceKeyCopy | None:
        """The credentials that a certificate belongs to, which TLS has proved."""
        return await self._log_in(
            certificate.subject, "CERTIFICATE", over, lambda copy: copy.knows(certificate)
        )

    async def _log_in(
        self, sn: str, wrong: Wrong, over: Way, is_right: Callable[[DeviceKeyCopy], bool]
    ) -> DeviceKeyCopy | None:
        """The log-in that Redis had no copy for ends the time of the first key of the device."""
        kept = await self.copies.get(sn)
        copy = kept or await self._restore(sn)
        if copy is None:
            return None
        if not is_right(copy):
            self.refused.note(copy, wrong, over)
            return None
        if kept is None:
            await self.first_keys.drop(copy.sn)
        return copy

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
        return _identity(found, "the certificate logs no device in")

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


def _identity(found: DeviceKeyCopy | None, refusal: str) -> DeviceIdentity:
    """Count a log-in over HTTP; raise `Unauthenticated` when nothing was found."""
    count_login("device", ok=found is not None)
    if found is None:
        raise Unauthenticated(refusal)
    return DeviceIdentity(found.sn, found.device_id, found.tenant)


def _made(device: DeviceRef) -> tuple[str, DeviceKeyCopy]:
    """A new key, and what is kept of it; raise `InvalidInput` for an SN that no login can have."""
    if len(device.sn) > MAX_SN or not is_token(device.sn):
        raise InvalidInput(
            "must be plain characters without blanks and any of . * > / + # $", field="sn"
        )
    key = secrets.token_urlsafe(24)
    return key, DeviceKeyCopy(device.sn, device.device_id, device.tenant, device_key_hash(key))


def offer_devices(rpc: RpcServer, service: DeviceService) -> None:
    """Offer the operations on device credentials as `rpc.auth.…`."""
    rpc.offer("issue_device_credentials", DeviceRef, service.issue)
    rpc.offer("issue_first_device_credentials", FirstKeyWanted, service.issue_first)
    rpc.offer("revoke_device_credentials", DeviceRef, service.revoke)
    rpc.offer("last_refused_login", DeviceRef, service.last_refused)
    rpc.offer("check_device", DeviceLogin, service.check)
    rpc.offer("check_device_certificate", DeviceCertificateRef, service.check_certificate)
    rpc.offer("add_device_certificate", DeviceCertificate, service.add_certificate)
    rpc.offer("revoke_device_certificate", DeviceCertificateRef, service.revoke_certificate)
    rpc.offer("list_device_certificates", ListDeviceCertificates, service.list_certificates)
