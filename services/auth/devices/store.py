"""Device credentials in MongoDB, by SN in capitals; a change intends its revocation."""

from typing import Any

from libs.common.contracts.auth import DeviceRef
from libs.common.errors import Conflict
from libs.common.identity.device_keys import DeviceKeyCopy
from libs.common.store.mongo import DuplicateKey, Mongo, Session
from services.auth.devices.service import revocation_of
from services.auth.revocations.store import RevocationStore


class DeviceStore:
    """The collection `device_credentials`."""

    def __init__(self, mongo: Mongo, revocations: RevocationStore) -> None:
        self._mongo = mongo
        self._credentials = mongo.database["device_credentials"]
        self._revocations = revocations

    async def put(self, credentials: DeviceKeyCopy) -> bool:
        """Set the credentials of an SN and tell whether it had some.

        Raises `Conflict` when another tenant has the SN.
        """

        async def work(session: Session) -> bool:
            result = await self._credentials.update_one(
                {"_id": credentials.sn.upper(), "tenant": credentials.tenant},
                {
                    "$set": {
                        "sn": credentials.sn,
                        "deviceId": credentials.device_id,
                        "keyHash": credentials.key_hash,
                    }
                },
                upsert=True,
                session=session,
            )
            if result.matched_count:
                await self._revocations.add(revocation_of(credentials.sn), session)
            return bool(result.matched_count)

        try:
            return await self._mongo.transaction(work)
        except DuplicateKey as error:
            raise Conflict(
                f"the SN {credentials.sn} has credentials elsewhere", field="sn"
            ) from error

    async def remove(self, device: DeviceRef) -> bool:
        """Remove the credentials of this very device; tell whether there were any."""

        async def work(session: Session) -> bool:
            result = await self._credentials.delete_one(
                {
                    "_id": device.sn.upper(),
                    "tenant": device.tenant,
                    "deviceId": device.device_id,
                },
                session=session,
            )
            if result.deleted_count:
                await self._revocations.add(revocation_of(device.sn), session)
            return bool(result.deleted_count)

        return await self._mongo.transaction(work)

    async def get(self, sn: str) -> DeviceKeyCopy | None:
        """The credentials of an SN."""
        found: dict[str, Any] | None = await self._credentials.find_one({"_id": sn.upper()})
        if found is None:
            return None
        return DeviceKeyCopy(found["sn"], found["deviceId"], found["tenant"], found["keyHash"])
