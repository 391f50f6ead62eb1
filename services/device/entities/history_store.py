"""Values of entities in history.

Properties are in the partitions of history, outputs of events in `device_events`, and inputs of
device services in `commands`. The value of an event is the object of its outputs, and that of a
service the object of its inputs. A STRUCT has no value of its own, but its children have.

Each partition is aggregated separately, then their results together. MongoDB adds doubles with a
remainder, so the sum of a million doubles keeps all digits.
"""

import base64
import binascii
import heapq
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal

from libs.common.clock import from_ms, to_ms
from libs.common.store.mongo import BATCH_BYTES, FIRST_BATCH, Mongo, build_page_stages, read_rows
from services.device.members.entity import Entity
from services.device.telemetry.device_events import EVENTS_COLLECTION
from services.device.telemetry.partitions import (
    KEY_FORMAT,
    collection_name,
    keys_between,
    partition_number,
)

COMMANDS_COLLECTION = "commands"


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """`start` ≤ time ≤ `end`, in ms."""

    start: int
    end: int
    newest_first: bool = True

    @property
    def sort_direction(self) -> int:
        """Return the order as MongoDB expects it."""
        return -1 if self.newest_first else 1


@dataclass(frozen=True, slots=True)
class HistoryScan:
    """A query that reads values from one collection."""

    collection: str
    match: dict[str, Any]
    order: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where history stores the values of one entity."""

    entity: Entity
    oldest: int
    """Start of the retention of the entity's values, ms."""

    @property
    def value_field(self) -> str:
        """Return the field of a document that has the value."""
        path = self.entity.reported_path
        match self.entity.member.type:
            case "PROPERTY":
                return ".".join(("p", *path))
            case "EVENT":
                return ".".join(("o", *path[1:]))
            case _:
                return ".".join(("payload.inputs", *path[1:]))

    @property
    def projection(self) -> dict[str, Any]:
        """Return the projection: the value as `v`, the time as `t` unless the key contains it."""
        return {"v": f"${self.value_field}"} | (
            {"t": "$createdAt"} if self.entity.member.type == "SERVICE" else {}
        )

    def build_scans(self, span: TimeSpan) -> list[HistoryScan]:
        """Return the queries, in the order of `span`; none for a write-only entity."""
        member = self.entity.member
        if self.entity.write_only:
            return []
        span = replace(span, start=max(span.start, self.oldest))
        if member.type == "SERVICE":
            return [self._scan_commands(span)]
        order = [("_id", span.sort_direction)]
        keys = keys_between(self.entity.thing.id, span.start, span.end)
        match: dict[str, Any] = {"_id": keys, **self._value_condition()}
        if member.type == "EVENT":
            return [
                HistoryScan(EVENTS_COLLECTION, match | {"e": self._event_or_service_id()}, order)
            ]
        partitions = range(partition_number(span.start), partition_number(span.end) + 1)
        ordered: Sequence[int] = partitions[:: span.sort_direction]
        return [HistoryScan(collection_name(partition), match, order) for partition in ordered]

    def _value_condition(self) -> dict[str, Any]:
        """Return the condition that the value exists and is no object of children.

        A device of the product `generic` may send a value in one report and an object in another.
        Members without children skip the condition on objects, which takes a third of the time of
        an aggregate.
        """
        member = self.entity.member
        if member.type != "PROPERTY" and member.parent is None:
            return {self.value_field: {"$exists": True}}
        if member.value_type == "OBJECT":
            return {self.value_field: {"$type": "array"}}
        if self.entity.thing.members.children(member.path):
            return {self.value_field: {"$exists": True, "$not": {"$type": "object"}}}
        return {self.value_field: {"$exists": True}}

    def _event_or_service_id(self) -> str:
        """Return the id of the event or service that the entity belongs to."""
        first = self.entity.reported_path[0]
        return first.removesuffix(f"@{self.entity.member.type.lower()}")

    def _scan_commands(self, span: TimeSpan) -> HistoryScan:
        first, last = (from_ms(ms) for ms in (span.start, span.end))
        match = {
            "thingId": self.entity.thing.id,
            "kind": "CALL_SERVICE",
            "payload.serviceId": self._event_or_service_id(),
            "createdAt": {"$gte": first, "$lte": last},
            **self._value_condition(),
        }
        return HistoryScan(
            COMMANDS_COLLECTION,
            match,
            [("createdAt", span.sort_direction), ("_id", span.sort_direction)],
        )


def row_time(row: dict[str, Any]) -> int:
    """Return the time of a row in ms."""
    if "t" in row:
        return to_ms(row["t"])
    return int(KEY_FORMAT.unpack(row["_id"])[1])


VALUES_PER_READ = 1000
"""Distinct values that are read at a time to compare them as bytes."""

AggregateKind = Literal["MIN", "MAX", "TOTAL", "COUNT", "DISTINCT"]
"""`TOTAL` returns sum and number of values, for SUM and AVG."""

MAX_COUNTED_VALUES = 10_000
"""Maximum different values of a COUNT, most frequent first."""

PipelineStages = list[dict[str, Any]]

SourceTimeValue = tuple[int, int, Any]
"""A stored value as a tuple: index of its source, time in ms, value."""


class ValueStore:
    """Reads history of entities."""

    def __init__(self, mongo: Mongo) -> None:
        self._database = mongo.direct

    async def read_page(
        self, sources: Sequence[ValueSource], span: TimeSpan, skip: int, limit: int
    ) -> tuple[AsyncGenerator[SourceTimeValue, None], int]:
        """Return up to `limit` records after the first `skip`, and the total."""
        counted = [await self._count_scans(source.build_scans(span)) for source in sources]
        total = sum(count for scans in counted for _, count in scans)
        if len(sources) == 1:
            return self._iterate_scans(sources[0], 0, counted[0], skip, limit), total
        walks = [
            self._iterate_scans(
                source, source_index, counted[source_index], 0, skip + limit, len(sources)
            )
            for source_index, source in enumerate(sources)
        ]
        return _merge_by_time(walks, skip, limit, newest_first=span.newest_first), total

    async def iterate_values(
        self, source: ValueSource, span: TimeSpan
    ) -> AsyncGenerator[SourceTimeValue, None]:
        """Yield all records in order, in constant memory."""
        scans = [(scan, sys.maxsize) for scan in source.build_scans(span)]
        async for record in self._iterate_scans(source, 0, scans, 0, sys.maxsize):
            yield record

    async def find_newest(self, source: ValueSource, span: TimeSpan) -> SourceTimeValue | None:
        """Return the newest record, or None."""
        scans = [(scan, 1) for scan in source.build_scans(span)]
        async with aclosing(self._iterate_scans(source, 0, scans, 0, 1)) as records:
            return await anext(records, None)

    async def aggregate(
        self, source: ValueSource, span: TimeSpan, kind: AggregateKind
    ) -> list[Any]:
        """Return the documents of an aggregate; `_build_pipeline` describes their fields."""
        pipeline = _build_pipeline(source, span, kind)
        if pipeline is None:
            return []
        collection, stages = pipeline
        rows = await self._database[collection].aggregate(stages, allowDiskUse=True)
        return await rows.to_list()

    async def find_extreme_binary(
        self, source: ValueSource, span: TimeSpan, kind: Literal["MIN", "MAX"]
    ) -> str | None:
        """Return the least or greatest base64 value, compared as bytes; None without values."""
        pipeline = _build_pipeline(source, span, "DISTINCT")
        if pipeline is None:
            return None
        collection, stages = pipeline
        rows = await self._database[collection].aggregate(
            stages, allowDiskUse=True, batchSize=VALUES_PER_READ
        )
        fold = min if kind == "MIN" else max
        best: str | None = None
        async for row in rows:
            best = row["_id"] if best is None else fold(best, row["_id"], key=_decode_binary)
        return best

    async def _count_scans(self, scans: Sequence[HistoryScan]) -> list[tuple[HistoryScan, int]]:
        return [
            (scan, await self._database[scan.collection].count_documents(scan.match))
            for scan in scans
        ]

    async def _iterate_scans(
        self,
        source: ValueSource,
        source_index: int,
        scans: Sequence[tuple[HistoryScan, int]],
        skip: int,
        limit: int,
        source_count: int = 1,
    ) -> AsyncGenerator[SourceTimeValue, None]:
        """Yield records of one of `source_count` sources; skipped scans are not read."""
        size, first = BATCH_BYTES // source_count, max(1, FIRST_BATCH // source_count)
        for scan, count in scans:
            if skip >= count:
                skip -= count
                continue
            if limit <= 0:
                return
            stages = build_page_stages(scan.match, scan.order, skip, limit)
            stages.append({"$project": source.projection})
            skip = 0
            async with aclosing(
                read_rows(self._database[scan.collection], stages, size=size, first=first)
            ) as rows:
                async for row in rows:
                    limit -= 1
                    yield source_index, row_time(row), row["v"]


async def _merge_by_time(
    walks: Sequence[AsyncGenerator[SourceTimeValue, None]],
    skip: int,
    limit: int,
    *,
    newest_first: bool,
) -> AsyncGenerator[SourceTimeValue, None]:
    """Yield up to `limit` records of all walks, sorted by time, after the first `skip`."""
    sign = -1 if newest_first else 1
    async with AsyncExitStack() as opened:
        for walk in walks:
            await opened.enter_async_context(aclosing(walk))
        heads = [
            (sign * head[1], head[0], head) for walk in walks if (head := await anext(walk, None))
        ]
        heapq.heapify(heads)
        while heads and limit > 0:
            _, source_index, record = heads[0]
            following = await anext(walks[source_index], None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (sign * following[1], source_index, following))
            if skip > 0:
                skip -= 1
                continue
            limit -= 1
            yield record


def _decode_binary(text: Any) -> bytes:
    """Return the bytes of a stored BINARY; invalid base64 is compared as text."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return str(text).encode()


def _build_pipeline(
    source: ValueSource, span: TimeSpan, kind: AggregateKind
) -> tuple[str, PipelineStages] | None:
    """Return the collection and the stages of an aggregate; None if there are no values.

    The stages of MIN and MAX yield one document with the value `v`, those of TOTAL one with the sum
    `v` and the number `n` of values. COUNT and DISTINCT yield one document per distinct value:
    `_id` is the value, `n` its number of occurrences. COUNT yields only the most frequent values.
    """
    scans = source.build_scans(span)
    if not scans:
        return None
    first, *others = (_group_values(scan, _value_expression(source, kind), kind) for scan in scans)
    unions = [
        {"$unionWith": {"coll": scan.collection, "pipeline": stages}}
        for scan, stages in zip(scans[1:], others, strict=True)
    ]
    together = [_merge_groups(kind)] if unions else []
    return scans[0].collection, [*first, *unions, *together, *_limit_counts(kind)]


def _value_expression(source: ValueSource, kind: AggregateKind) -> Any:
    """Return the expression of the value to aggregate: keys of a numeric ENUM are stored as text.

    Text that is no number, stored under an earlier TSL, does not count.
    """
    field = f"${source.value_field}"
    member = source.entity.member
    if (
        kind in ("COUNT", "DISTINCT")
        or member.value_type != "LONG"
        or "enum" not in member.attribute
    ):
        return field
    return {"$convert": {"input": field, "to": "long", "onError": None}}


def _group_values(scan: HistoryScan, value: Any, kind: AggregateKind) -> PipelineStages:
    group: dict[str, Any] = {"_id": None}
    match kind:
        case "MIN" | "MAX":
            group["v"] = {f"${kind.lower()}": value}
        case "TOTAL":
            group |= {"v": {"$sum": value}, "n": {"$sum": 1}}
        case "COUNT" | "DISTINCT":
            group |= {"_id": value, "n": {"$sum": 1}}
    return [{"$match": scan.match}, {"$group": group}]


def _merge_groups(kind: AggregateKind) -> dict[str, Any]:
    group: dict[str, Any] = {"_id": "$_id"}
    if kind in ("MIN", "MAX"):
        group["v"] = {f"${kind.lower()}": "$v"}
    else:
        group["n"] = {"$sum": "$n"}
    if kind == "TOTAL":
        group["v"] = {"$sum": "$v"}
    return {"$group": group}


def _limit_counts(kind: AggregateKind) -> PipelineStages:
    if kind != "COUNT":
        return []
    return [{"$sort": {"n": -1, "_id": 1}}, {"$limit": MAX_COUNTED_VALUES}]
