"""TSL events that devices reported: storage and search in the management API.

`device_events`: `{_id, e, o, at, d?}`, clustered by keys like those of history. `e` is the id of
the event in the TSL, `o` its outputs, `at` the time of storage, and `d` the delay of its arrival in
ms. `BatchStore` writes the documents.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import RequestPrincipal
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.http.streaming import cut_page
from libs.common.identity import Principal
from libs.common.store.mongo import Database, Document, build_page_stages, read_rows
from services.device.telemetry.history import (
    KeyRangeResolver,
    TimestampMs,
    encode_cursor,
    post_search,
)
from services.device.telemetry.partitions import KEY_FORMAT, keys_between

EVENTS_COLLECTION = "device_events"


class EventStore:
    """Reads events. Retention deletes them through `collection`."""

    def __init__(self, database: Database) -> None:
        self.collection = database[EVENTS_COLLECTION]

    def read_before(
        self, first: bytes, key: bytes, limit: int, event_id: str | None = None
    ) -> AsyncGenerator[Document, None]:
        """Yield events with keys from `first` on and below `key`, the newest first."""
        query: dict[str, Any] = {"_id": {"$gte": first, "$lt": key}}
        if event_id is not None:
            query["e"] = event_id
        return read_rows(self.collection, build_page_stages(query, [("_id", -1)], limit=limit))

    async def find_newest(self, thing_id: int, event_id: str, oldest: int) -> Document | None:
        """Return the newest event with this id, not older than `oldest` (ms)."""
        query = {"_id": keys_between(thing_id, oldest), "e": event_id}
        return await self.collection.find_one(query, sort=[("_id", -1)])


MAX_PAGE_SIZE = 200
"""Maximum events of a page."""


class FindEvents(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /device/{device_id}/events/search`; times in ms, both inclusive."""

    start_timestamp: TimestampMs | None = None
    end_timestamp: TimestampMs | None = None
    """Defaults to now."""
    event_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None
    """Only events with this id in the TSL."""
    page_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_SIZE)] = 20
    next_key: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    """Position of the next page, as in the previous answer."""


class EventRecord(msgspec.Struct, kw_only=True):
    """An event that the device reported."""

    id: str
    """Identifies this occurrence."""
    ts: int
    """Time of the event, ms."""
    event_id: str
    """Its id in the TSL."""
    outputs: dict[str, Any]
    """Output values by name, without the id of the event."""


class FoundEvents(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A page of events, the newest first; `next_key` is present if older ones exist."""

    content: list[EventRecord]
    next_key: str | None = None


@dataclass(frozen=True)
class EventService:
    """Finds events for users who may see the device."""

    store: EventStore
    key_ranges: KeyRangeResolver

    async def find(self, principal: Principal, device_id: int, request: FindEvents) -> FoundEvents:
        """Return a page of events; raise like `KeyRangeResolver`."""
        bounds = (request.start_timestamp, request.end_timestamp, request.next_key)
        key_range = await self.key_ranges.resolve_for_user(principal, device_id, bounds)
        size = request.page_size
        rows = self.store.read_before(key_range.first, key_range.last, size + 1, request.event_id)
        records, last = await cut_page(rows, size, _record)
        following = None if last is None else encode_cursor(last["_id"])
        return FoundEvents(content=records, next_key=following)


def _record(row: Document) -> EventRecord:
    key = bytes(row["_id"])
    return EventRecord(
        id=encode_cursor(key), ts=KEY_FORMAT.unpack(key)[1], event_id=row["e"], outputs=row["o"]
    )


@post_search("/{device_id:str}/events/search")
async def find_device_events(
    principal: RequestPrincipal,
    device_events: NamedDependency[EventService],
    device_id: PathId,
    data: JSONBody[FindEvents | None] = None,
) -> FoundEvents:
    """List the events that the device reported, the newest first, with outputs."""
    return await device_events.find(principal, device_id, data or FindEvents())


ROUTER = route_operations(globals(), "/device", tags=["Devices"])
