"""What may be done with RPS records. An application sees its own; people those of the tenant."""

from urllib.parse import urlsplit

from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Kind, Principal
from services.device.products.rps.schemas import RpsPage, RpsRecord, SearchProfiles, SetProfile
from services.device.products.rps.store import HeldRecord, RpsStore
from services.device.things.errors import device_exists, rps_record_exists
from services.device.things.schemas import order_of
from services.device.things.serial_numbers import SerialTaken, check_serial, key_of

LONGEST_URL = 2048
DONE = "success"
"""The result text that the platform answers."""

COLUMNS = {"sn": "_id", "profileUrl": "profileUrl"}

_ATTEMPTS = 3


class RpsService:
    """RPS records of an application. An SN has one record on the whole platform."""

    def __init__(self, store: RpsStore) -> None:
        self._store = store

    async def set_profile(self, principal: Principal, body: SetProfile) -> str:
        """Set the profile URL of an SN; its own record is changed.

        Raises `InvalidInput`, or `Conflict` when the SN is a device that is somebody's, or of
        another tenant, or has a record of another application.
        """
        sn = check_serial(body.sn, "sn")
        url = _checked_url(body.profile_url)
        owner = _owner(principal)
        for _ in range(_ATTEMPTS):
            if await self._store.change(owner, key_of(sn), url):
                return DONE
            try:
                await self._store.insert(owner, sn, url)
            except SerialTaken as error:
                holder = await self._store.holder(key_of(sn))
                if holder in {"device", "nobody"}:
                    raise device_exists(sn, "sn") from error
                if holder == "rps" and not await self._store.owns(owner, key_of(sn)):
                    break
            else:
                return DONE
        raise rps_record_exists(sn, "sn")

    async def search(self, principal: Principal, search: SearchProfiles) -> RpsPage:
        """One page of the application's records."""
        records, total = await self._store.page(
            _owner(principal),
            order_of(search.sorts or [], COLUMNS),
            (search.page_number - 1) * search.page_size,
            search.page_size,
        )
        shown = [RpsRecord(one.sn, one.profile_url) for one in records]
        return RpsPage(search.page_size, search.page_number, total, shown)

    async def of_tenant(
        self, principal: Principal, begin: str, number: int, size: int
    ) -> tuple[list[HeldRecord], int]:
        """A page of the tenant's records by SN, whose SN begins so, and how many there are."""
        owner, skip = (principal.tenant, None), (number - 1) * size
        return await self._store.page(owner, [("_id", 1)], skip, size, key_of(begin))

    async def delete(self, principal: Principal, sn: str) -> str:
        """Delete a record; raise `NotFound` when the application has none of this SN.

        A user deletes that of any application of the tenant.
        """
        owner = (principal.tenant, None) if principal.kind is Kind.USER else _owner(principal)
        if not await self._store.delete(owner, key_of(sn)):
            raise NotFound(
                "there is no RPS record of this SN", field="sn", code="rps_record_not_found"
            )
        return DONE


def _owner(principal: Principal) -> tuple[str, int]:
    return principal.tenant, principal.application_id


def _checked_url(text: str) -> str:
    if len(text) > LONGEST_URL:
        raise InvalidInput(f"must have at most {LONGEST_URL} characters", field="profileUrl")
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
