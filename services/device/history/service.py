"""A page of property history, with a cursor that stays put while reports arrive."""

import base64
import binascii
import time
from typing import Protocol

from libs.common.errors import InvalidInput
from services.device.history.partitions import DAY_MS, KEY
from services.device.history.schemas import HistoryPage, HistoryRecord
from services.device.history.store import Span

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000
LATEST_TIME = 253_402_300_799_999
"""The last millisecond of the year 9999."""


class Reader(Protocol):
    """What the service needs of the store."""

    async def page(
        self, span: Span, after: bytes | None, size: int
    ) -> "list[tuple[bytes, int, dict[str, object]]]":
        """Read records behind a key."""


class HistoryService:
    """Answers `GET …/properties/history`."""

    def __init__(self, store: Reader, retention_days: int) -> None:
        self._store = store
        self._retention_ms = retention_days * DAY_MS

    async def page(
        self,
        device_id: int,
        *,
        stored: bool,
        start: int | None,
        end: int | None,
        size: int | None,
        key: str | None,
        order: str | None,
    ) -> HistoryPage:
        """Read one page; without any bound it is the last day (specification).

        A device whose data storage is off has no history to show. Times are ms. Sizes above
        1000 are cut to 1000 (Decision 7). Raises `InvalidInput` for an order, a bound or a cursor that cannot be.
        """
        now = int(time.time() * 1000)
        newest_first = _newest_first(order)
        if size is not None and size < 1:
            raise InvalidInput("must be at least 1", field="pageSize")
        size = min(size or DEFAULT_PAGE, LARGEST_PAGE)
        oldest = now - self._retention_ms
        if start is not None and end is not None and start > end:
            raise InvalidInput("must not be before startTime", field="endTime")
        last = min(end if end is not None else now + DAY_MS, now + DAY_MS)
        first = max(start if start is not None else _default_start(now, end), oldest)
        after = _decode_key(key, device_id) if key else None
        if first > last or not stored:
            return HistoryPage(list=[], page_size=size)
        records = await self._store.page(
            Span(device_id, first, last, newest_first), after, size + 1
        )
        return HistoryPage(
            list=[HistoryRecord(ts, properties) for _, ts, properties in records[:size]],
            page_size=size,
            next_page_key=_encode_key(records[size - 1][0]) if len(records) > size else None,
        )


def _default_start(now: int, end: int | None) -> int:
    return now - DAY_MS if end is None else end - DAY_MS


def _newest_first(order: str | None) -> bool:
    match (order or "desc").lower():
        case "desc":
            return True
        case "asc":
            return False
    raise InvalidInput("must be asc or desc", field="order")


def _encode_key(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode()


def _decode_key(text: str, device_id: int) -> bytes:
    try:
        key = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidInput("is not a key that this operation gave", field="pageKey") from error
    if len(key) != KEY.size or KEY.unpack(key)[0] != device_id:
        raise InvalidInput("is not a key that this operation gave", field="pageKey")
    if KEY.unpack(key)[1] > LATEST_TIME:
        raise InvalidInput("is not a key that this operation gave", field="pageKey")
    return key
