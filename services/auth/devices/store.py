"""Device credentials in MongoDB, by SN in capitals; a change intends its revocation.

`{_id, sn, tenant, deviceId, keyHash, certificates: [{serial, expires}]}`, expires in ms.
"""

from libs.common.contracts.auth import DeviceCertificate, DeviceCertificateRef, DeviceRef
from libs.common.errors import Conflict
from libs.common.identity import Kind
from libs.common.identity.device_keys import DeviceKeyCopy
from libs.common.store.mongo import Document, DuplicateKey, Mongo, Session
from services.auth.revocations.service import Revocation, RevocationStore


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

        async def work(session: Session) -> str | None:
            before = await self._credentials.find_one_and_update(
                {"_id": credentials.sn.upper(), "tenant": credentials.tenant},
                {"$set": _fields(credentials)},
                upsert=True,
                session=session,
            )
            return await self._revoke(before, session)

        try:
            return await self._mongo.transaction(work)
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

        async def work(session: Session) -> str | None:
            before = await self._credentials.find_one_and_delete(
                {
                    "_id": device.sn.upper(),
                    "tenant": device.tenant,
                    "deviceId": device.device_id,
                },
                session=session,
            )
            return await self._revoke(before, session)

        return await self._mongo.transaction(work)

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

        async def work(session: Session) -> bool:
            serial = {"serial": certificate.serial}
            before = await self._credentials.find_one_and_update(
                {"_id": certificate.sn.upper(), "certificates": {"$elemMatch": serial}},
                {"$pull": {"certificates": serial}},
                session=session,
            )
            return await self._revoke(before, session) is not None

        return await self._mongo.transaction(work)

    async def certificates(self, sn: str) -> list[DeviceCertificate]:
        """The certificates of an SN, the latest first; none when it has no credentials."""
        found = await self._credentials.find_one({"_id": sn.upper()})
        return [
            DeviceCertificate(sn, one["serial"], one["expires"])
            for one in (found or {}).get("certificates", [])
        ]

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
