"""Serial numbers (SN): their format, and who holds each of them.

An SN is a token of NATS subjects and a level of MQTT topics, so it is unique on the whole platform
without regard to case. The collection `serials` holds all of them: `{_id: SN in upper case, holder,
behind?: tenant of an unassigned device with this SN}`. An assigned device and an RPS record cannot
have the same SN.
"""

import re
from collections.abc import Collection, Iterable
from typing import Literal

from libs.common.errors import InvalidInput
from libs.common.store.mongo import BulkFailed, Database, Session

SERIAL_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
DEV_EUI_PATTERN = re.compile(r"[0-9A-Fa-f]{16}")

SerialHolder = Literal["device", "rps", "nobody"]
"""The holder of an SN. `nobody`: only an unassigned device, removed from its application, has
it."""


class SerialTaken(Exception):
    """The SN has another holder."""


def check_serial(text: str, field: str) -> str:
    """Return `text` if it is a valid SN; raise `InvalidInput` for `field` otherwise."""
    if not SERIAL_PATTERN.fullmatch(text):
        raise InvalidInput("must be 1 to 64 letters, digits, '_' or '-'", field=field)
    return text


def serial_key(serial: str) -> str:
    """Return the form by which SNs are compared."""
    return serial.upper()


def parse_dev_eui(serial: str) -> str | None:
    """Return an SN of 16 hexadecimal digits as DevEUI in upper case, otherwise None."""
    return serial.upper() if DEV_EUI_PATTERN.fullmatch(serial) else None


class SerialStore:
    """Stores the holders of SNs; keys are SNs in upper case."""

    def __init__(self, database: Database) -> None:
        self._serials = database["serials"]

    async def find_holder(self, key: str) -> SerialHolder | None:
        """Return the holder of the SN."""
        document = await self._serials.find_one({"_id": key})
        return document["holder"] if document else None

    async def filter_rps_records(self, keys: Collection[str]) -> set[str]:
        """Return those of the SNs that RPS records hold."""
        query = {"_id": {"$in": list(keys)}, "holder": "rps"}
        return {document["_id"] async for document in self._serials.find(query, {"_id": 1})}

    async def claim(self, keys: Iterable[str], holder: SerialHolder, session: Session) -> None:
        """Assign SNs to a holder; raise `SerialTaken` when one has a holder."""
        documents = [{"_id": key, "holder": holder} for key in keys]
        try:
            await self._serials.insert_many(documents, session=session)
        except BulkFailed as error:
            raise SerialTaken from error

    async def mark_device_unassigned(self, key: str, tenant: str, session: Session) -> None:
        """Record that the device of the SN is unassigned."""
        change = {"$set": {"holder": "nobody", "behind": tenant}}
        await self._serials.update_one({"_id": key}, change, session=session)

    async def mark_assigned(self, key: str, session: Session) -> None:
        """Record that the device is assigned again; raise `SerialTaken` for an RPS record."""
        change = {"$set": {"holder": "device"}, "$unset": {"behind": ""}}
        free = {"_id": key, "holder": {"$ne": "rps"}}
        if not (await self._serials.update_one(free, change, session=session)).matched_count:
            raise SerialTaken

    async def claim_for_rps_record(self, key: str, tenant: str, session: Session) -> None:
        """Assign an SN to an RPS record.

        An unassigned device of the tenant may have the SN. Raises `SerialTaken`.
        """
        free = {"_id": key, "holder": "nobody", "behind": tenant}
        change = {"$set": {"holder": "rps"}}
        if not (await self._serials.update_one(free, change, session=session)).matched_count:
            await self.claim([key], "rps", session)

    async def release_rps_record(self, key: str, session: Session) -> None:
        """Release the SN of a deleted RPS record; an unassigned device gets it back."""
        behind = {"_id": key, "behind": {"$exists": True}}
        change = {"$set": {"holder": "nobody"}}
        if not (await self._serials.update_one(behind, change, session=session)).matched_count:
            await self._serials.delete_one({"_id": key}, session=session)

    async def release(self, key: str, session: Session) -> None:
        """Release the SN of a deleted device; an RPS record of the SN stays."""
        record = {"_id": key, "holder": "rps"}
        change = {"$unset": {"behind": ""}}
        if not (await self._serials.update_one(record, change, session=session)).matched_count:
            await self._serials.delete_one({"_id": key}, session=session)
