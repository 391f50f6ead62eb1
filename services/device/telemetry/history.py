"""History of properties: pages of reported values, newest or oldest first."""

import base64
import binascii
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from libs.common.clock import now_ms
from libs.common.errors import InvalidInput
from libs.common.http import RequestPrincipal
from libs.common.http.console import post
from libs.common.http.guards import allow_holders
from libs.common.http.ids import PathId
from libs.common.http.open_api import get
from libs.common.http.streaming import chain_rows, cut_page, iterate_rows
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import Aggregation, Document, MeanRowSize, build_page_stages, read_page
from libs.common.tsl import Tsl
from services.device.telemetry.partitions import (
    DAY_MS,
    KEY_FORMAT,
    MAX_KEY_PART,
    Partitions,
    history_key,
    keys_between,
    partition_number,
)
from services.device.telemetry.retention import Retention
from services.device.telemetry.uplink import MAX_CLOCK_AHEAD_MS
from services.device.things.device_store import DeviceStore
from services.device.things.directory import GrantedDevices, ThingDirectory
from services.device.things.errors import device_not_found
from services.device.things.model import Device, StorageSettings
from services.device.things.schemas import require_application
from services.device.things.specifications import TslStore

ROW_SIZE_CACHE_SIZE = 10_000
"""Devices whose average size of history records is cached."""
_NO_DEVICE: Document = {"_id": None}


@dataclass(frozen=True, slots=True)
class HistorySpan:
    """The requested part of a device's history: `start` ≤ ts ≤ `end` (ms)."""

    device_id: int
    start: int
    end: int
    newest_first: bool


@dataclass(frozen=True)
class HistoryStore:
    """Reads the property history of devices."""

    devices: DeviceStore
    partitions: Partitions
    retention: Retention
    tsls: TslStore
    sizes: LruCache[int, MeanRowSize] = field(default_factory=lambda: LruCache(ROW_SIZE_CACHE_SIZE))
    """The average size of history records, by recently read device."""

    async def page(
        self, tenant: str, application_id: int, span: HistorySpan, after: bytes | None, size: int
    ) -> AsyncGenerator[Document, None] | None:
        """Yield up to `size` records after the key `after`, for an application's device.

        Return None when the device does not exist; yield nothing when its data storage is off. The
        device and the first records are read together.
        """
        query = self.devices.storage_settings_query(tenant, span.device_id, application_id)
        batches = self._scan(span, after, size, query)
        device, *records = await anext(batches, [_NO_DEVICE])
        if device["_id"] != span.device_id:  # not found: this is its first record of history
            await batches.aclose()
            return None
        settings = msgspec.convert(device, StorageSettings)
        if not settings.data_storage:
            await batches.aclose()
            return iterate_rows([])
        content_hash = settings.tsl[0]["hash"] if settings.tsl else None
        tsl = await self.tsls.find_or_generic(
            settings.tenant, settings.model, settings.tsl_version, content_hash
        )
        oldest_kept = await self.retention.oldest_kept_time(settings.tenant, settings.model)
        oldest = max(oldest_kept, settings.owned_since)
        records = records or await anext(batches, [])
        if records and not span.newest_first and _record_time(records[0]) < oldest:
            await batches.aclose()
            batches, records = self._scan(replace(span, start=oldest), after, size), []
        return self._filter_readable(records, batches, history_key(span.device_id, oldest, 0), tsl)

    async def _filter_readable(
        self,
        first: list[Document],
        others: AsyncGenerator[list[Document], None],
        oldest: bytes,
        tsl: Tsl,
    ) -> AsyncGenerator[Document, None]:
        """Yield rows from the key `oldest` on, without write-only values."""
        async with aclosing(chain_rows([first], others)) as batches:
            async for rows in batches:
                for row in rows:
                    if row["_id"] < oldest:
                        return
                    if tsl.conceals:  # stored under another TSL
                        row["p"] = tsl.readable(row["p"])
                    yield row

    async def _scan(
        self,
        span: HistorySpan,
        after: bytes | None,
        size: int,
        device: Aggregation | None = None,
    ) -> AsyncGenerator[list[Document], None]:
        """Yield up to `size` records from one partition after the other, in lists.

        If `device` is given, the first row is the document that this query finds.
        """
        bounds = keys_between(span.device_id, span.start, span.end)
        if after is not None:
            bounds["$lt" if span.newest_first else "$gt"] = after
        order = [("_id", -1 if span.newest_first else 1)]
        if (row_size := self.sizes.get(span.device_id)) is None:
            self.sizes.put(span.device_id, row_size := MeanRowSize())
        for partition in self._select_partitions(span, after):
            history = self.partitions.collection(partition)
            stages = build_page_stages({"_id": bounds}, order, limit=size)
            if device is not None:
                records = {"$unionWith": {"coll": history.name, "pipeline": stages}}
                (history, stages), device = device, None
                stages, size = [*stages, records], size + 1
            async with aclosing(read_page(history, stages, size, row_size)) as batches:
                async for rows in batches:
                    yield rows
                    size -= len(rows)
            if size <= 0:
                return

    @staticmethod
    def _select_partitions(span: HistorySpan, after: bytes | None) -> range:
        """Return the partitions to read, at least one."""
        first, last = partition_number(span.start), partition_number(span.end)
        if after is not None:
            reached = partition_number(KEY_FORMAT.unpack(after)[1])
            first, last = (
                (first, min(last, reached)) if span.newest_first else (max(first, reached), last)
            )
        last = max(first, last)
        return range(last, first - 1, -1) if span.newest_first else range(first, last + 1)


def _record_time(record: Document) -> int:
    return int(KEY_FORMAT.unpack(record["_id"])[1])


DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
MAX_TIME_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


class HistoryRecord(msgspec.Struct):
    """Values that were reported together; `ts` in ms."""

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
        """Return a page of history; without times the last day.

        Times are ms. Sizes above 1000 are reduced to 1000. Raises `InvalidInput` for a wrong order,
        time or cursor, `NotFound` for a device that the caller may not see.
        """
        now = now_ms()
        newest_first = _is_newest_first(order)
        size = min(size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
        oldest = max(now - self._retention_ms, 0)
        if start is not None and end is not None and start > end:
            raise InvalidInput("must not be before startTime", field="endTime")
        newest = now + MAX_CLOCK_AHEAD_MS
        last = newest if end is None else min(end, newest)
        default_start = now - DAY_MS if end is None else oldest
        first = max(default_start if start is None else start, oldest)
        after = decode_cursor(key, device_id) if key else None
        records = await self._store.page(
            principal.tenant,
            require_application(principal),
            HistorySpan(device_id, first, last, newest_first),
            after,
            size + 1,
        )
        if records is None:
            raise device_not_found(device_id)
        page_records, behind = await cut_page(records, size, _record)
        return HistoryPage(
            list=page_records,
            page_size=size,
            next_page_key=None if behind is None else encode_cursor(behind["_id"]),
        )


def _record(row: Document) -> HistoryRecord:
    return HistoryRecord(KEY_FORMAT.unpack(row["_id"])[1], row["p"])


def _is_newest_first(order: str | None) -> bool:
    match (order or "desc").lower():
        case "desc":
            return True
        case "asc":
            return False
    raise InvalidInput("must be asc or desc", field="order")


def encode_cursor(key: bytes) -> str:
    """Return the cursor for the position after a key."""
    return base64.urlsafe_b64encode(key).decode()


def decode_cursor(text: str, device_id: int, field: str = "pageKey") -> bytes:
    """Return the key of a cursor; raise `InvalidInput` unless it is of this device."""
    try:
        key = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidInput("must be a key from an answer of this operation", field=field) from error
    if (
        len(key) != KEY_FORMAT.size
        or KEY_FORMAT.unpack(key)[0] != device_id
        or KEY_FORMAT.unpack(key)[1] > MAX_TIME_MS
    ):
        raise InvalidInput("must be a key from an answer of this operation", field=field)
    return key


TimestampMs = Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_MS)]


StartTime = Annotated[
    int | None,
    QueryParameter(
        name="startTime",
        description="Start of the period in milliseconds since 1970-01-01 UTC, inclusive.",
        ge=0,
        le=MAX_TIME_MS,
    ),
]
EndTime = Annotated[
    int | None,
    QueryParameter(
        name="endTime",
        description="End of the period in milliseconds since 1970-01-01 UTC, inclusive.",
        ge=0,
        le=MAX_TIME_MS,
    ),
]
PageKey = Annotated[
    str | None,
    QueryParameter(
        name="pageKey",
        description="`nextPageKey` of the previous page. Absent: the first page.",
        max_length=64,
    ),
]


@get("/device/openapi/v1/devices/{device_id:str}/properties/history", tags=["Devices"])
async def get_property_history(
    principal: RequestPrincipal,
    history: NamedDependency[HistoryService],
    device_id: PathId,
    start_time: StartTime = None,
    end_time: EndTime = None,
    page_size: Annotated[int | None, QueryParameter(name="pageSize", ge=1)] = None,
    page_key: PageKey = None,
    order: Annotated[
        str | None,
        QueryParameter(
            description="`desc` (newest first, the default) or `asc`.",
            max_length=8,
            schema_extra={"enum": ["asc", "desc"]},
        ),
    ] = None,
) -> HistoryPage:
    """List reported properties; none for devices without data storage.

    Without `startTime` and `endTime` the answer covers the last 24 hours.
    """
    return await history.page(
        principal,
        device_id,
        start=start_time,
        end=end_time,
        size=page_size,
        key=page_key,
        order=order,
    )


post_search = partial(post, guards=[allow_holders(Function.DEVICE_VIEW)], example={"page_size": 20})
"""Declares a POST operation of the console that searches data of a device (`DEVICE_VIEW`)."""


class KeyRange(NamedTuple):
    """The device and keys of a requested part of its data."""

    device: Device
    first: bytes
    """First key: the start, or the beginning of the current ownership if that is later."""
    last: bytes
    """Upper bound of the keys: the end or, if a previous page exists, the last key of that page."""
    continued: bool
    """Whether a previous page exists."""


RequestedRange = tuple[int | None, int | None, str | None]
"""Start and end in ms, and the key of the page, as requested."""


@dataclass(frozen=True)
class KeyRangeResolver:
    """Resolves requested times (ms) and cursors to key ranges of a device.

    Raises `InvalidInput` for wrong times or a wrong cursor, `NotFound` for a device that the caller
    may not see.
    """

    things: ThingDirectory
    granted: GrantedDevices

    async def resolve_for_application(
        self, principal: Principal, device_id: int, bounds: RequestedRange
    ) -> KeyRange:
        """Return the key range of a request of an application."""
        device = await self.things.get_device(principal, device_id)
        return _key_range(device, bounds, ("endTime", "pageKey"))

    async def resolve_for_user(
        self, principal: Principal, device_id: int, bounds: RequestedRange
    ) -> KeyRange:
        """Return the key range of a user's request; raise `Forbidden` without any grant."""
        device = await self.granted.find(principal, device_id)
        return _key_range(device, bounds, ("end_timestamp", "next_key"))


def _key_range(device: Device, bounds: RequestedRange, fields: tuple[str, str]) -> KeyRange:
    """Return the key range; `fields` are the request's names of the end and of the cursor."""
    start, end, key = bounds
    if start is not None and end is not None and start > end:
        raise InvalidInput("must not be before the start", field=fields[0])
    first = history_key(device.id, max(start or 0, device.owned_since), 0)
    last = history_key(device.id, now_ms() if end is None else end, MAX_KEY_PART)
    if key is not None:
        last = min(last, decode_cursor(key, device.id, fields[1]))
    return KeyRange(device, first, last, continued=key is not None)
