"""Records of the remote provisioning service (RPS): profile URLs of SNs.

`rps`: `{_id: SN in upper case, sn, tenant, applicationId, profileUrl, createdAt, updatedAt}`.
"""

from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Principal, PrincipalKind
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import LimitsCache
from libs.common.store.mongo import Mongo, Session, find_page, literal_pattern, raise_on_duplicate
from services.device.things.errors import device_exists_error, rps_record_exists
from services.device.things.schemas import Search, build_order
from services.device.things.serial_numbers import (
    SerialHolder,
    SerialStore,
    SerialTaken,
    check_serial,
    serial_key,
)


class OwnedRpsRecord(NamedTuple):
    """A record and the application that owns it."""

    sn: str
    profile_url: str
    application: int


RpsOwner = tuple[str, int | None]
"""A tenant and an application id; without id all applications of the tenant."""


class RpsStore:
    """Reads and writes RPS records; an `owner` is a tenant and an application id."""

    def __init__(self, mongo: Mongo, limits: LimitsCache) -> None:
        self._mongo = mongo
        self._records = mongo.database["rps"]
        self._serials = SerialStore(mongo.database)
        self._quota = Quota(self._records, limits, "records")

    async def change_url(self, owner: tuple[str, int], key: str, url: str) -> bool:
        """Change the URL of the owner's record; False when the owner has no record of this SN."""
        changes = {"profileUrl": url, "updatedAt": datetime.now(UTC)}
        changed = await self._records.update_one(
            {"_id": key, **_owner_condition(owner)}, {"$set": changes}
        )
        return bool(changed.matched_count)

    async def insert(self, owner: tuple[str, int], sn: str, url: str) -> None:
        """Insert a record; raise `SerialTaken` when its SN has a holder.

        Raises `TooManyRequests` at the tenant's limit.
        """
        await self._quota.reserve(owner[0])
        now = datetime.now(UTC)
        record = {
            "_id": serial_key(sn),
            "sn": sn,
            **_owner_condition(owner),
            "profileUrl": url,
            "createdAt": now,
            "updatedAt": now,
        }

        async def insert_record(session: Session) -> None:
            await self._serials.claim_for_rps_record(serial_key(sn), owner[0], session)
            await self._records.insert_one(record, session=session)

        with raise_on_duplicate(SerialTaken()):
            await self._mongo.transaction(insert_record)

    async def find_holder(self, key: str) -> SerialHolder | None:
        """Return the holder of an SN, or None."""
        return await self._serials.find_holder(key)

    async def has_record(self, owner: tuple[str, int], key: str) -> bool:
        """Return whether the owner has a record of this SN."""
        return (
            await self._records.find_one({"_id": key, **_owner_condition(owner)}, {"_id": 1})
            is not None
        )

    async def list_tenants(self) -> list[str]:
        """Return the tenants that have records."""
        return list(await self._records.distinct("tenant"))

    async def list_applications(self, tenant: str) -> list[int]:
        """Return the applications of a tenant that have records."""
        return list(await self._records.distinct("applicationId", {"tenant": tenant}))

    async def list_serial_keys(self, owner: tuple[str, int]) -> list[str]:
        """Return the SNs, in upper case, of an owner's records."""
        return [row["_id"] async for row in self._records.find(_owner_condition(owner), {"_id": 1})]

    async def read_page(
        self, owner: RpsOwner, order: list[tuple[str, int]], skip: int, limit: int, begin: str = ""
    ) -> tuple[list[OwnedRpsRecord], int]:
        """Return a page of the owner's records whose SN begins with `begin`, and the total.

        `begin` is in upper case.
        """
        query = _owner_condition(owner)
        if begin:
            query["_id"] = {"$regex": "^" + literal_pattern(begin, "sn")}
        rows, total = await find_page(self._records, query, order, skip, limit)
        records = [
            OwnedRpsRecord(row["sn"], row["profileUrl"], row["applicationId"]) for row in rows
        ]
        return records, total

    async def delete(self, owner: RpsOwner, key: str) -> bool:
        """Delete the owner's record; False when it does not exist."""

        async def delete_record(session: Session) -> bool:
            deletion = await self._records.delete_one(
                {"_id": key, **_owner_condition(owner)}, session=session
            )
            if deletion.deleted_count:
                await self._serials.release_rps_record(key, session)
            return bool(deletion.deleted_count)

        return await self._mongo.transaction(delete_record)


def _owner_condition(owner: RpsOwner) -> dict[str, Any]:
    tenant, application_id = owner
    return {"tenant": tenant} | (
        {} if application_id is None else {"applicationId": application_id}
    )


class SetProfile(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /rps/profile`."""

    sn: str
    profile_url: str


class SearchProfiles(Search):
    """Body of `POST /rps/search`."""


class RpsRecord(msgspec.Struct, rename="camel"):
    """The profile URL of the device with this SN."""

    sn: str
    profile_url: str


class RpsPage(msgspec.Struct, rename="camel"):
    """One page of a search."""

    page_size: int
    page_number: int
    total: int
    content: list[RpsRecord]


MAX_PROFILE_URL_CHARACTERS = 2048
DONE_TEXT = "success"
"""The result text of successful operations."""

SORT_FIELD_BY_COLUMN = {"sn": "_id", "profileUrl": "profileUrl"}

_MAX_ATTEMPTS = 3


class RpsService:
    """RPS records of an application. An SN has one record on the whole platform."""

    def __init__(self, store: RpsStore) -> None:
        self._store = store

    async def set_profile(self, principal: Principal, body: SetProfile) -> str:
        """Set the profile URL of an SN; change its record if it exists.

        Raises `InvalidInput`, or `Conflict` when an assigned device or a device of another tenant
        has the SN, or another application has its record.
        """
        sn = check_serial(body.sn, "sn")
        url = _validate_url(body.profile_url)
        owner = _record_owner(principal)
        for _ in range(_MAX_ATTEMPTS):
            if await self._store.change_url(owner, serial_key(sn), url):
                return DONE_TEXT
            try:
                await self._store.insert(owner, sn, url)
            except SerialTaken as error:
                holder = await self._store.find_holder(serial_key(sn))
                if holder in {"device", "nobody"}:
                    raise device_exists_error(sn, "sn") from error
                if holder == "rps" and not await self._store.has_record(owner, serial_key(sn)):
                    break
            else:
                return DONE_TEXT
        raise rps_record_exists(sn, "sn")

    async def search(self, principal: Principal, search: SearchProfiles) -> RpsPage:
        """Return a page of the application's records."""
        records, total = await self._store.read_page(
            _record_owner(principal),
            build_order(search.sorts or [], SORT_FIELD_BY_COLUMN),
            (search.page_number - 1) * search.page_size,
            search.page_size,
        )
        rows = [RpsRecord(record.sn, record.profile_url) for record in records]
        return RpsPage(search.page_size, search.page_number, total, rows)

    async def list_for_tenant(
        self, principal: Principal, begin: str, number: int, size: int
    ) -> tuple[list[OwnedRpsRecord], int]:
        """Return a page of the tenant's records whose SN begins with `begin`, and the total."""
        owner, skip = (principal.tenant, None), (number - 1) * size
        return await self._store.read_page(owner, [("_id", 1)], skip, size, serial_key(begin))

    async def delete(self, principal: Principal, sn: str) -> str:
        """Delete the record of an SN; raise `NotFound` when the application has no such record.

        A user deletes the record of any application of the tenant.
        """
        owner = (
            (principal.tenant, None)
            if principal.kind is PrincipalKind.USER
            else _record_owner(principal)
        )
        if not await self._store.delete(owner, serial_key(sn)):
            raise NotFound(
                "there is no RPS record of this SN", field="sn", code="rps_record_not_found"
            )
        return DONE_TEXT


def _record_owner(principal: Principal) -> tuple[str, int]:
    return principal.tenant, principal.application_id


def _validate_url(text: str) -> str:
    if len(text) > MAX_PROFILE_URL_CHARACTERS:
        raise InvalidInput(
            f"must have at most {MAX_PROFILE_URL_CHARACTERS} characters", field="profileUrl"
        )
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidInput("must be printable ASCII without spaces", field="profileUrl")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInput("must be an http or https URL", field="profileUrl")
    return text
