"""Device credentials: keys and certificates for logins over MQTT, NATS and HTTP.

`device_credentials` in MongoDB: `{_id, sn, tenant, deviceId, keyHash, certificates: [{serial,
expires}]}`. `_id` is the SN in capitals, `expires` is in ms. A change of credentials also stores
its revocation.
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
    IssueFirstKey,
    LastRefusedLogin,
    ListDeviceCertificates,
    LoginFault,
    LoginProtocol,
)
from libs.common.errors import Conflict, InvalidInput, NotFound, Unauthenticated
from libs.common.identity import PrincipalKind
from libs.common.identity.device_keys import DeviceKeyCopy, RejectedLogins, device_key_hash
from libs.common.store.mongo import Document, DuplicateKey, Mongo, Session, raise_on_duplicate
from libs.common.tls import PeerCertificate
from services.auth.login_records import count_login
from services.auth.revocations import Revocation, RevocationApplier, RevocationStore
from services.auth.tokens.device_keys import DeviceKeyCopyStore, FirstKeyStore


def build_device_revocation(sn: str, nats_user: str | None) -> Revocation:
    """Return the revocation that deletes the Redis copy of an SN's credentials.

    `nats_user` is the spelling of the SN whose connections are closed; None closes none.
    """
    return Revocation(PrincipalKind.DEVICE, sn.upper(), user=nats_user or "")


class DeviceCredentialStore:
    """The collection `device_credentials`."""

    def __init__(self, mongo: Mongo, revocations: RevocationStore) -> None:
        self._mongo = mongo
        self._credentials = mongo.database["device_credentials"]
        self._revocations = revocations

    async def set_key_and_get_former_sn(self, credentials: DeviceKeyCopy) -> str | None:
        """Store the key of an SN; return the SN's former spelling, None for a new SN.

        Certificates of the SN stay valid. Raises `Conflict` if another tenant has the SN.
        """

        async def put_credentials(session: Session) -> str | None:
            before = await self._credentials.find_one_and_update(
                {"_id": credentials.sn.upper(), "tenant": credentials.tenant},
                {"$set": _credential_fields(credentials)},
                upsert=True,
                session=session,
            )
            return await self._add_revocation_and_get_sn(before, session)

        with raise_on_duplicate(
            Conflict(f"another tenant has the SN {credentials.sn}", field="sn")
        ):
            return await self._mongo.transaction(put_credentials)

    async def add(self, credentials: DeviceKeyCopy) -> bool:
        """Store the key of a new SN; return False if the SN has credentials already."""
        identity = {"_id": credentials.sn.upper(), "tenant": credentials.tenant}
        try:
            await self._credentials.insert_one(identity | _credential_fields(credentials))
        except DuplicateKey:
            return False
        return True

    async def remove_and_get_sn(self, device: DeviceRef) -> str | None:
        """Delete a device's credentials; return the stored spelling of its SN, or None."""

        async def delete_credentials(session: Session) -> str | None:
            before = await self._credentials.find_one_and_delete(
                {
                    "_id": device.sn.upper(),
                    "tenant": device.tenant,
                    "deviceId": device.device_id,
                },
                session=session,
            )
            return await self._add_revocation_and_get_sn(before, session)

        return await self._mongo.transaction(delete_credentials)

    async def add_certificate(self, certificate: DeviceCertificate, now: int) -> bool:
        """Add a certificate; return False if no credentials have this exact SN.

        Certificates that have expired by `now` (ms) are deleted.
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
        result = await self._credentials.update_one(
            {"_id": certificate.sn.upper(), "sn": certificate.sn},
            [{"$set": {"certificates": {"$concatArrays": [[new], others]}}}],
        )
        return result.matched_count > 0

    async def remove_certificate(self, certificate: DeviceCertificateRef) -> bool:
        """Remove a certificate; return False if the device does not have it."""

        async def pull_certificate(session: Session) -> bool:
            serial = {"serial": certificate.serial}
            before = await self._credentials.find_one_and_update(
                {"_id": certificate.sn.upper(), "certificates": {"$elemMatch": serial}},
                {"$pull": {"certificates": serial}},
                session=session,
            )
            return await self._add_revocation_and_get_sn(before, session) is not None

        return await self._mongo.transaction(pull_certificate)

    async def list_certificates(self, sn: str) -> list[DeviceCertificate]:
        """Return the certificates of an SN, the last added first."""
        document = await self._credentials.find_one({"_id": sn.upper()}) or {}
        return [DeviceCertificate(sn, **entry) for entry in document.get("certificates", [])]

    async def _add_revocation_and_get_sn(
        self, before: Document | None, session: Session
    ) -> str | None:
        if before is None:
            return None
        sn: str = before["sn"]
        await self._revocations.add(before["tenant"], build_device_revocation(sn, sn), session)
        return sn

    async def get(self, sn: str) -> DeviceKeyCopy | None:
        """Return the credentials of an SN, or None."""
        document = await self._credentials.find_one({"_id": sn.upper()})
        if document is None:
            return None
        serials = [certificate["serial"] for certificate in document.get("certificates", [])]
        return DeviceKeyCopy(
            document["sn"], document["deviceId"], document["tenant"], document["keyHash"], serials
        )


def _credential_fields(credentials: DeviceKeyCopy) -> Document:
    return {
        "sn": credentials.sn,
        "deviceId": credentials.device_id,
        "keyHash": credentials.key_hash,
    }


MAX_SN_CHARACTERS = 128
"""Maximum characters of an SN."""
MAX_CERTIFICATES = 16
"""Maximum unexpired certificates of a device."""
WRONG_LOGIN_TEXT = "the SN or the device key is wrong"
"""The message for an unknown device as well as for a wrong key."""


class ClientIdRegistry(Protocol):
    """The reservations of MQTT client ids."""

    async def release_client_id(self, client_id: str) -> None:
        """Delete another user's reservation of `client_id`, which is the SN of a device."""
        ...


@dataclass(frozen=True)
class DeviceCredentialService:
    """The operations on device credentials."""

    store: DeviceCredentialStore
    copies: DeviceKeyCopyStore
    first_keys: FirstKeyStore
    revoker: RevocationApplier
    client_ids: ClientIdRegistry
    rejected_logins: RejectedLogins

    async def issue_key(self, device: DeviceRef) -> DeviceCredentials:
        """Create a key, which is shown only once; the old key is revoked on return.

        Raises `InvalidInput` for an invalid SN, `Conflict` if another tenant has the SN.
        """
        key, credentials = _create_key(device)
        replaced = await self.store.set_key_and_get_former_sn(credentials)
        await self.first_keys.delete(device.sn)
        await self.client_ids.release_client_id(device.sn)
        await self.revoker.apply(build_device_revocation(device.sn, replaced))
        return DeviceCredentials(device.sn, key)

    async def issue_first_key(self, device: IssueFirstKey) -> FirstDeviceKey:
        """Return a new first key; for a device with credentials, the stored key or None.

        Only a `repeatable` request stores a first key, or returns a stored one. Raises
        `InvalidInput` for an invalid SN.
        """
        key, credentials = _create_key(device)
        if not await self.store.add(credentials):
            again = await self.first_keys.find(device) if device.repeatable else None
            return FirstDeviceKey(again)
        if device.repeatable:
            await self.first_keys.store(device, key)
        await self.client_ids.release_client_id(device.sn)
        await self.revoker.apply(build_device_revocation(device.sn, None))
        return FirstDeviceKey(key)

    async def revoke_credentials(self, device: DeviceRef) -> Done:
        """Revoke a device's key and certificates before returning. Idempotent."""
        removed = await self.store.remove_and_get_sn(device)
        if removed is not None:
            await self.first_keys.delete(device.sn)
            await self.revoker.apply(build_device_revocation(device.sn, removed))
        return Done()

    async def check_key(self, login: DeviceLogin) -> DeviceIdentity:
        """Return the device with an SN and key; raise `Unauthenticated`."""
        return _require_identity(await self.log_in(login.sn, login.key, "HTTP"), WRONG_LOGIN_TEXT)

    async def log_in(self, sn: str, key: str, over: LoginProtocol) -> DeviceKeyCopy | None:
        """Return the credentials of an SN, from Redis or MongoDB; None for a wrong key."""
        return await self._log_in(sn, "KEY", over, lambda copy: copy.matches_key(key))

    async def log_in_with_certificate(
        self, certificate: PeerCertificate, over: LoginProtocol
    ) -> DeviceKeyCopy | None:
        """Return the credentials of the device with a TLS-verified certificate, or None."""
        return await self._log_in(
            certificate.subject,
            "CERTIFICATE",
            over,
            lambda copy: copy.matches_certificate(certificate),
        )

    async def _log_in(
        self,
        sn: str,
        wrong: LoginFault,
        over: LoginProtocol,
        is_right: Callable[[DeviceKeyCopy], bool],
    ) -> DeviceKeyCopy | None:
        """Return the credentials of an SN if `is_right` accepts them, else None.

        The first login of a device finds no copy in Redis. A login without a copy therefore ends
        the display of the first key.
        """
        kept = await self.copies.get(sn)
        copy = kept or await self._restore_copy(sn)
        if copy is None:
            return None
        if not is_right(copy):
            self.rejected_logins.record(copy, wrong, over)
            return None
        if kept is None:
            await self.first_keys.delete(copy.sn)
        return copy

    async def add_certificate(self, certificate: DeviceCertificate) -> Done:
        """Allow a device to log in with a certificate.

        Raises `NotFound` for an SN without credentials, `Conflict` beyond `MAX_CERTIFICATES`.
        """
        now, certificates = now_ms(), await self.store.list_certificates(certificate.sn)
        if sum(each.expires > now for each in certificates) >= MAX_CERTIFICATES:
            raise Conflict(
                f"{certificate.sn} has {MAX_CERTIFICATES} certificates; revoke one first"
            )
        if not await self.store.add_certificate(certificate, now):
            raise NotFound(f"no device with credentials has the exact SN {certificate.sn}")
        await self.revoker.apply(build_device_revocation(certificate.sn, None))
        return Done()

    async def revoke_certificate(self, certificate: DeviceCertificateRef) -> Done:
        """Revoke a certificate and close its connections; raise `NotFound`."""
        if not await self.store.remove_certificate(certificate):
            raise NotFound(f"{certificate.sn} has no certificate {certificate.serial}")
        await self.revoker.apply(build_device_revocation(certificate.sn, certificate.sn))
        return Done()

    async def list_certificates(self, request: ListDeviceCertificates) -> DeviceCertificates:
        """Return the certificates of a device."""
        return DeviceCertificates(await self.store.list_certificates(request.sn))

    async def check_certificate(self, certificate: DeviceCertificateRef) -> DeviceIdentity:
        """Return the device of a TLS-verified certificate; raise `Unauthenticated`."""
        peer_certificate = PeerCertificate(certificate.sn, certificate.serial)
        credentials = await self.log_in_with_certificate(peer_certificate, "HTTP")
        return _require_identity(credentials, "the certificate does not belong to a device")

    async def get_last_rejected_login(self, device: DeviceRef) -> LastRefusedLogin:
        """Return the device's last rejected login of the past 7 days."""
        rejected_login = await self.rejected_logins.last(device.sn, device.device_id, device.tenant)
        return (
            LastRefusedLogin(rejected_login.at, rejected_login.over, rejected_login.wrong)
            if rejected_login
            else LastRefusedLogin()
        )

    async def _restore_copy(self, sn: str) -> DeviceKeyCopy | None:
        announced = await self.copies.announce_restore(sn)
        credentials = await self.store.get(sn)
        if credentials is not None:
            await self.copies.store_if_announced(credentials, announced)
        return credentials


def _require_identity(credentials: DeviceKeyCopy | None, rejection: str) -> DeviceIdentity:
    """Count a login over HTTP and return its device; raise `Unauthenticated`."""
    count_login("device", ok=credentials is not None)
    if credentials is None:
        raise Unauthenticated(rejection)
    return DeviceIdentity(credentials.sn, credentials.device_id, credentials.tenant)


def _create_key(device: DeviceRef) -> tuple[str, DeviceKeyCopy]:
    """Return a new key and its stored form; raise `InvalidInput` for an invalid SN."""
    if len(device.sn) > MAX_SN_CHARACTERS or not is_token(device.sn):
        raise InvalidInput("must not contain blanks or any of . * > / + # $", field="sn")
    key = secrets.token_urlsafe(24)
    return key, DeviceKeyCopy(device.sn, device.device_id, device.tenant, device_key_hash(key))


def offer_devices(rpc: RpcServer, service: DeviceCredentialService) -> None:
    """Offer the operations on device credentials as `rpc.auth.…`."""
    rpc.offer("issue_device_credentials", DeviceRef, service.issue_key)
    rpc.offer("issue_first_device_credentials", IssueFirstKey, service.issue_first_key)
    rpc.offer("revoke_device_credentials", DeviceRef, service.revoke_credentials)
    rpc.offer("last_refused_login", DeviceRef, service.get_last_rejected_login)
    rpc.offer("check_device", DeviceLogin, service.check_key)
    rpc.offer("check_device_certificate", DeviceCertificateRef, service.check_certificate)
    rpc.offer("add_device_certificate", DeviceCertificate, service.add_certificate)
    rpc.offer("revoke_device_certificate", DeviceCertificateRef, service.revoke_certificate)
    rpc.offer("list_device_certificates", ListDeviceCertificates, service.list_certificates)
