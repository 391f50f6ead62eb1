"""RPS records in MongoDB: `{_id: SN in upper case, sn, tenant, applicationId, profileUrl,
createdAt, updatedAt}`.
"""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from libs.common.limits.quota import Quota
from libs.common.limits.tenants import KnownLimits
from libs.common.store.mongo import DuplicateKey, Mongo, Session, find_page, pattern_of
from services.device.things.serial_numbers import Holder, Serials, SerialTaken, key_of


class HeldRecord(NamedTuple):
    """A record, and the application whose it is."""

    sn: str
    profile_url: str
    application: int


Owner = tuple[str, int | None]
"""A tenant and an application id; without one all applications of the tenant."""


class RpsStore:
    """Reads and writes RPS records; an `owner` is a tenant and an application id."""

    def __init__(self, mongo: Mongo, limits: KnownLimits) -> None:
        self._mongo = mongo
        self._records = mongo.database["rps"]
        self._serials = Serials(mongo.database)
        self._quota = Quota(self._records, limits, "records")

    async def change(self, owner: tuple[str, int], key: str, url: str) -> bool:
        """Change the URL of the owner's record; False when it has none of this SN."""
        changes = {"profileUrl": url, "updatedAt": datetime.now(UTC)}
        changed = await self._records.update_one({"_id": key, **_of(owner)}, {"$set": changes})
        return bool(changed.matched_count)

    async def insert(self, owner: tuple[str, int], sn: str, url: str) -> None:
        """Write a record; raise `SerialTaken` when its SN has a holder.

        Raises `TooManyRequests` when the tenant has as many as it may.
        """
        await self._quota.take(owner[0])
        now = datetime.now(UTC)
        record = {
            "_id": key_of(sn),
            "sn": sn,
            **_of(owner),
            "profileUrl": url,
            "createdAt": now,
            "updatedAt": now,
        }

        async def work(session: Session) -> None:
            await self._serials.claim_for_record(key_of(sn), owner[0], session)
            await self._records.insert_one(record, session=session)

        try:
            await self._mongo.transaction(work)
        except DuplicateKey as error:
            raise SerialTaken from error

    async def holder(self, key: str) -> Holder | None:
        """What holds an SN."""
        return await self._serials.holder(key)

    async def owns(self, owner: tuple[str, int], key: str) -> bool:
        """Whether the owner has a record of this SN."""
        return await self._records.find_one({"_id": key, **_of(owner)}, {"_id": 1}) is not None

    async def tenants(self) -> list[str]:
        """Return the tenants that have records."""
        return list(await self._records.distinct("tenant"))

    async def applications(self, tenant: str) -> list[int]:
        """Return the applications of a tenant that have records."""
        return list(await self._records.distinct("applicationId", {"tenant": tenant}))

    async def keys(self, owner: tuple[str, int]) -> list[str]:
        """The SNs, in upper case, of an owner's records."""
        return [row["_id"] async for row in self._records.find(_of(owner), {"_id": 1})]

    async def page(
        self, owner: Owner, order: list[tuple[str, int]], skip: int, limit: int, begin: str = ""
    ) -> tuple[list[HeldRecord], int]:
        """Records of the owner in `order` whose SN begins so, and how many there are."""
        wanted = _of(owner)
        if begin:
            wanted["_id"] = {"$regex": "^" + pattern_of(begin, "sn")}
        found, total = await find_page(self._records, wanted, order, skip, limit)
        held = [HeldRecord(one["sn"], one["profileUrl"], one["applicationId"]) for one in found]
        return held, total

    async def delete(self, owner: Owner, key: str) -> bool:
        """Delete the owner's record; False when there is none."""

        async def work(session: Session) -> bool:
            gone = await self._records.delete_one({"_id": key, **_of(owner)}, session=session)
            if gone.deleted_count:
                await self._serials.release_record(key, session)
            return bool(gone.deleted_count)

        return await self._mongo.transaction(work)


def _of(owner: Owner) -> dict[str, Any]:
    tenant, application_id = owner
    return {"tenant": tenant} | (
        {} if application_id is None else {"applicationId": application_id}
    )
