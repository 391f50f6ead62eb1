"""A page of property history, with a cursor that stays put while reports arrive."""

import base64
import binascii
from typing import Annotated, Any

import msgspec

from libs.common.clock import now_ms
from libs.common.errors import InvalidInput
from libs.common.http.streaming import cut_page
from libs.common.identity import Principal
from libs.common.store.mongo import Document
from services.device.reports.checking import FUTURE_MS
from services.device.reports.history.partitions import DAY_MS, KEY
from services.device.reports.history.store import HistoryStore, Span
from services.device.things.errors import device_not_found
from services.device.things.schemas import application_of

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000
LATEST_TIME = 253_402_300_799_999
"""The last millisecond of the year 9999."""


class HistoryRecord(msgspec.Struct):
    """Values reported together; `ts` in ms."""

    ts: int
    properties: dict[str, Any]


class HistoryPage(msgspec.Struct, rename="camel", omit_defaults=True):
    """A page; `nextPageKey` is absent on the last one."""

    list: list[HistoryRecord]
    page_size: int
    next_page_key: str | None = None


class HistoryService:
    """Answers `GET …/properties/history`."""

    def __init__(self, store: HistoryStore, retention_days: int) -> None:
        self._store = store
        self._retention_ms = retention_days * DAY_MS

    async def page(
        self,
        principal: Principal,
        device_id: int,
        *,
        start: int | None,
        end: int | None,
        size: int | None,
        key: str | None,
        order: str | None,
    ) -> HistoryPage:
        """Read one page; without any bound it is the last day (specification).

        Times are ms. Sizes above 1000 are cut to 1000. Raises `InvalidInput`
        for an order, a bound or a cursor that cannot be, `NotFound` for a device that the
        caller may not see.
        """
        now = now_ms()
        newest_first = _newest_first(order)
        size = min(size or DEFAULT_PAGE, LARGEST_PAGE)
        oldest = max(now - self._retention_ms, 0)
        if start is not None and end is not None and start > end:
            raise InvalidInput("must not be before startTime", field="endTime")
        newest = now + FUTURE_MS
        last = newest if end is None else min(end, newest)
        default_start = now - DAY_MS if end is None else oldest
        first = max(default_start if start is None else start, oldest)
        after = decode_key(key, device_id) if key else None
        records = await self._store.page(
            principal.tenant,
            application_of(principal),
            Span(device_id, first, last, newest_first),
            after,
            size + 1,
        )
        if records is None:
            raise device_not_found(device_id)
        shown, behind = await cut_page(records, size, _record)
        return HistoryPage(
            list=shown,
            page_size=size,
            next_page_key=None if behind is None else encode_key(behind["_id"]),
        )


def _record(row: Document) -> HistoryRecord:
    return HistoryRecord(KEY.unpack(row["_id"])[1], row["p"])


def _newest_first(order: str | None) -> bool:
    match (order or "desc").lower():
        case "desc":
            return True
        case "asc":
            return False
    raise InvalidInput("must be asc or desc", field="order")


def encode_key(key: bytes) -> str:
    """A cursor that stands behind a key."""
    return base64.urlsafe_b64encode(key).decode()


def decode_key(text: str, device_id: int, field: str = "pageKey") -> bytes:
    """The key of a cursor; raise `InvalidInput` for what is none of this device."""
    try:
        key = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidInput("is not a key that this operation gave", field=field) from error
    if len(key) != KEY.size or KEY.unpack(key)[0] != device_id:
        raise InvalidInput("is not a key that this operation gave", field=field)
    if KEY.unpack(key)[1] > LATEST_TIME:
        raise InvalidInput("is not a key that this operation gave", field=field)
    return key


Moment = Annotated[int, msgspec.Meta(ge=0, le=LATEST_TIME)]
