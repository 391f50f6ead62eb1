"""Device credentials in MongoDB, by SN in capitals; a change intends its revocation."""

from libs.common.contracts.auth import DeviceRef
from libs.common.errors import Conflict
from libs.common.identity import Kind
from libs.common.identity.device_keys import DeviceKeyCopy
from libs.common.store.mongo import Document, DuplicateKey, Mongo, Session
from services.auth.revocations.store import Revocation, RevocationStore


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

    async def _revoke(self, before: Document | None, session: Session) -> str | None:
        if before is None:
            return None
        sn: str = before["sn"]
        await self._revocations.add(revocation_of(sn, sn), session)
        return sn

    async def get(self, sn: str) -> DeviceKeyCopy | None:
        """The credentials of an SN."""
        found = await self._credentials.find_one({"_id": sn.upper()})
        if found is None:
            return None
        return DeviceKeyCopy(found["sn"], found["deviceId"], found["tenant"], found["keyHash"])


def _fields(credentials: DeviceKeyCopy) -> Document:
    return {
        "sn": credentials.sn,
        "deviceId": credentials.device_id,
        "keyHash": credentials.key_hash,
    }
