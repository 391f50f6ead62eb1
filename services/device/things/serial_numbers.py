"""Serial numbers: what they look like, and that each has one holder.

An SN is a token of a NATS subject and a level of an MQTT topic, so it is unique on the
whole platform, without regard to case. One collection, `serials`, holds them all,
`{_id: SN in upper case, holder, behind?: tenant of a device that is nobody's}`: a device that
is somebody's and an RPS record of the same SN cannot both be.
"""

import re
from collections.abc import Collection, Iterable
from typing import Literal

from libs.common.errors import InvalidInput
from libs.common.store.mongo import BulkFailed, Database, Session

SERIAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
DEV_EUI = re.compile(r"[0-9A-Fa-f]{16}")

Holder = Literal["device", "rps", "nobody"]
"""`nobody`: a device that was removed from its application is kept under the SN."""


class SerialTaken(Exception):
    """The SN has a holder already."""


def check_serial(text: str, field: str) -> str:
    """Return `text` when it can be an SN; raise `InvalidInput` naming `field`."""
    if not SERIAL.fullmatch(text):
        raise InvalidInput("must be 1 to 64 letters, digits, '_' or '-'", field=field)
    return text


def key_of(serial: str) -> str:
    """The form by which SNs are compared."""
    return serial.upper()


def dev_eui_of(serial: str) -> str | None:
    """The DevEUI that an SN of 16 hexadecimal digits is, in upper case."""
    return serial.upper() if DEV_EUI.fullmatch(serial) else None


class Serials:
    """Who holds which SN; keys are in upper case."""

    def __init__(self, database: Database) -> None:
        self._serials = database["serials"]

    async def holder(self, key: str) -> Holder | None:
        """What holds the SN now."""
        document = await self._serials.find_one({"_id": key})
        return document["holder"] if document else None

    async def records(self, keys: Collection[str]) -> set[str]:
        """Those of some SNs that RPS records hold."""
        query = {"_id": {"$in": list(keys)}, "holder": "rps"}
        return {document["_id"] async for document in self._serials.find(query, {"_id": 1})}

    async def claim(self, keys: Iterable[str], holder: Holder, session: Session) -> None:
        """Take SNs; raise `SerialTaken` when somebody has one."""
        taken = [{"_id": key, "holder": holder} for key in keys]
        try:
            await self._serials.insert_many(taken, session=session)
        except BulkFailed as error:
            raise SerialTaken from error

    async def lay_down(self, key: str, tenant: str, session: Session) -> None:
        """A device of the tenant is nobody's; it stays behind the SN, whoever holds that."""
        change = {"$set": {"holder": "nobody", "behind": tenant}}
        await self._serials.update_one({"_id": key}, change, session=session)

    async def take_up(self, key: str, session: Session) -> None:
        """The device behind the SN is somebody's again; raise `SerialTaken` by an RPS record."""
        change = {"$set": {"holder": "device"}, "$unset": {"behind": ""}}
        free = {"_id": key, "holder": {"$ne": "rps"}}
        if not (await self._serials.update_one(free, change, session=session)).matched_count:
            raise SerialTaken

    async def claim_for_record(self, key: str, tenant: str, session: Session) -> None:
        """Take the SN for an RPS record, also before a device of the tenant that is nobody's."""
        free = {"_id": key, "holder": "nobody", "behind": tenant}
        change = {"$set": {"holder": "rps"}}
        if not (await self._serials.update_one(free, change, session=session)).matched_count:
            await self.claim([key], "rps", session)

    async def release_record(self, key: str, session: Session) -> None:
        """Give back the SN of an RPS record, to the device behind it if there is one."""
        behind = {"_id": key, "behind": {"$exists": True}}
        change = {"$set": {"holder": "nobody"}}
        if not (await self._serials.update_one(behind, change, session=session)).matched_count:
            await self._serials.delete_one({"_id": key}, session=session)

    async def release(self, key: str, session: Session) -> None:
        """The device of the SN is gone; an RPS record of it stays."""
        record = {"_id": key, "holder": "rps"}
        change = {"$unset": {"behind": ""}}
        if not (await self._serials.update_one(record, change, session=session)).matched_count:
            await self._serials.delete_one({"_id": key}, session=session)
