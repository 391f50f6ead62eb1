"""Values of entities in history.

In an aggregate every partition is folded by itself, then the folds are. MongoDB adds doubles with
a remainder, so that a sum of a million of them has all its digits.

Where the values of an entity are kept, by what it is.

Properties stand in the partitions of history, outputs of events in `device_events`, inputs of
the services of devices in `commands`. The value of an event or a service itself is the object of
them all, at each time that it occurred or was called; a STRUCT has none, its children have.
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
from libs.common.store.mongo import BATCH_BYTES, FIRST_BATCH, Mongo, page_stages, read_rows
from services.device.members.entity import Entity
from services.device.telemetry.device_events import EVENTS
from services.device.telemetry.partitions import (
    KEY,
    collection_name,
    keys_between,
    partition_of,
)

COMMANDS = "commands"


@dataclass(frozen=True, slots=True)
class Span:
    """`start` ≤ time ≤ `end`, in ms."""

    start: int
    end: int
    newest_first: bool = True

    @property
    def direction(self) -> int:
        """The order, as MongoDB has it."""
        return -1 if self.newest_first else 1


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read of one collection."""

    collection: str
    match: dict[str, Any]
    order: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Source:
    """The values of one entity."""

    entity: Entity
    oldest: int
    """From when on (ms) its history is kept."""

    @property
    def field(self) -> str:
        """Where a document has the value."""
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
        """The value as `v`, and `t` where the key does not tell the time."""
        return {"v": f"${self.field}"} | (
            {"t": "$createdAt"} if self.entity.member.type == "SERVICE" else {}
        )

    def scans(self, span: Span) -> list[Scan]:
        """What to read, in the order of `span`; nothing of what is write-only."""
        member = self.entity.member
        if self.entity.write_only:
            return []
        span = replace(span, start=max(span.start, self.oldest))
        if member.type == "SERVICE":
            return [self._of_commands(span)]
        order = [("_id", span.direction)]
        keys = keys_between(self.entity.thing.id, span.start, span.end)
        match: dict[str, Any] = {"_id": keys, **self._present()}
        if member.type == "EVENT":
            return [Scan(EVENTS, match | {"e": self._owner()}, order)]
        partitions = range(partition_of(span.start), partition_of(span.end) + 1)
        ordered: Sequence[int] = partitions[:: span.direction]
        return [Scan(collection_name(partition), match, order) for partition in ordered]

    def _present(self) -> dict[str, Any]:
        """The value is there, and is none of which the children have the parts.

        A device of the open product may send a value in one report and an object in another;
        all others are spared the question, which takes a third of the time of an aggregate.
        """
        member = self.entity.member
        if member.type != "PROPERTY" and member.parent is None:
            return {self.field: {"$exists": True}}
        if member.value_type == "OBJECT":
            return {self.field: {"$type": "array"}}
        if self.entity.thing.members.children(member.path):
            return {self.field: {"$exists": True, "$not": {"$type": "object"}}}
        return {self.field: {"$exists": True}}

    def _owner(self) -> str:
        """Id of the event or service that the entity belongs to."""
        first = self.entity.reported_path[0]
        return first.removesuffix(f"@{self.entity.member.type.lower()}")

    def _of_commands(self, span: Span) -> Scan:
        first, last = (from_ms(ms) for ms in (span.start, span.end))
        match = {
            "thingId": self.entity.thing.id,
            "kind": "CALL_SERVICE",
            "payload.serviceId": self._owner(),
            "createdAt": {"$gte": first, "$lte": last},
            **self._present(),
        }
        return Scan(COMMANDS, match, [("createdAt", span.direction), ("_id", span.direction)])


def time_of(row: dict[str, Any]) -> int:
    """When a row's value was, in ms."""
    if "t" in row:
        return to_ms(row["t"])
    return int(KEY.unpack(row["_id"])[1])


BATCH = 1000
"""Values that are read at a time, where all of them are compared."""

AggregateOf = Literal["MIN", "MAX", "TOTAL", "COUNT", "DISTINCT"]
"""`TOTAL` gives sum and number of values, of which both SUM and AVG are made."""

MOST_COUNTED = 10_000
"""Different values that a COUNT answers, the most frequent first."""

Stages = list[dict[str, Any]]

Record = tuple[int, int, Any]
"""Which source it is from, time in ms, value as it is stored."""


class ValueStore:
    """What entities were."""

    def __init__(self, mongo: Mongo) -> None:
        self._database = mongo.direct

    async def page(
        self, sources: Sequence[Source], span: Span, skip: int, limit: int
    ) -> tuple[AsyncGenerator[Record, None], int]:
        """Return `limit` records behind the first `skip`, and how many there are in all."""
        counted = [await self._counted(source.scans(span)) for source in sources]
        total = sum(count for scans in counted for _, count in scans)
        if len(sources) == 1:
            return self._walk(sources[0], 0, counted[0], skip, limit), total
        walks = [
            self._walk(source, at, counted[at], 0, skip + limit, len(sources))
            for at, source in enumerate(sources)
        ]
        return _merged(walks, skip, limit, newest_first=span.newest_first), total

    async def records(self, source: Source, span: Span) -> AsyncGenerator[Record, None]:
        """Yield everything in order, in constant memory."""
        scans = [(scan, sys.maxsize) for scan in source.scans(span)]
        async for record in self._walk(source, 0, scans, 0, sys.maxsize):
            yield record

    async def last(self, source: Source, span: Span) -> Record | None:
        """The newest record."""
        scans = [(scan, 1) for scan in source.scans(span)]
        async with aclosing(self._walk(source, 0, scans, 0, 1)) as found:
            return await anext(found, None)

    async def aggregate(self, source: Source, span: Span, wanted: AggregateOf) -> list[Any]:
        """The documents that the pipeline of an aggregate gives."""
        pipeline = _pipeline(source, span, wanted)
        if pipeline is None:
            return []
        collection, stages = pipeline
        rows = await self._database[collection].aggregate(stages, allowDiskUse=True)
        return await rows.to_list()

    async def extreme_bytes(
        self, source: Source, span: Span, wanted: Literal["MIN", "MAX"]
    ) -> str | None:
        """The least or the greatest of values in base64, as the bytes they stand for."""
        pipeline = _pipeline(source, span, "DISTINCT")
        if pipeline is None:
            return None
        collection, stages = pipeline
        rows = await self._database[collection].aggregate(
            stages, allowDiskUse=True, batchSize=BATCH
        )
        fold = min if wanted == "MIN" else max
        best: str | None = None
        async for row in rows:
            best = row["_id"] if best is None else fold(best, row["_id"], key=_bytes)
        return best

    async def _counted(self, scans: Sequence[Scan]) -> list[tuple[Scan, int]]:
        return [
            (scan, await self._database[scan.collection].count_documents(scan.match))
            for scan in scans
        ]

    async def _walk(
        self,
        source: Source,
        number: int,
        scans: Sequence[tuple[Scan, int]],
        skip: int,
        limit: int,
        beside: int = 1,
    ) -> AsyncGenerator[Record, None]:
        """Yield records of one source of `beside`; scans that are skipped whole are not read."""
        bounds = {"size": BATCH_BYTES // beside, "first": max(1, FIRST_BATCH // beside)}
        for scan, count in scans:
            if skip >= count:
                skip -= count
                continue
            if limit <= 0:
                return
            stages = page_stages(scan.match, scan.order, skip, limit)
            stages.append({"$project": source.projection})
            skip = 0
            async with aclosing(
                read_rows(self._database[scan.collection], stages, **bounds)
            ) as rows:
                async for row in rows:
                    limit -= 1
                    yield number, time_of(row), row["v"]


async def _merged(
    walks: Sequence[AsyncGenerator[Record, None]], skip: int, limit: int, *, newest_first: bool
) -> AsyncGenerator[Record, None]:
    """Yield `limit` records of all walks in the order of time, behind the first `skip`."""
    sign = -1 if newest_first else 1
    async with AsyncExitStack() as opened:
        for walk in walks:
            await opened.enter_async_context(aclosing(walk))
        heads = [
            (sign * head[1], head[0], head) for walk in walks if (head := await anext(walk, None))
        ]
        heapq.heapify(heads)
        while heads and limit > 0:
            _, number, record = heads[0]
            following = await anext(walks[number], None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (sign * following[1], number, following))
            if skip > 0:
                skip -= 1
                continue
            limit -= 1
            yield record


def _bytes(text: Any) -> bytes:
    """What a stored BINARY holds, for comparing; what is no base64 compares as it stands."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return str(text).encode()


def _pipeline(source: Source, span: Span, wanted: AggregateOf) -> tuple[str, Stages] | None:
    """The collection to run on, and the stages; None when there is nothing to read.

    MIN and MAX give `v`, TOTAL `v` and `n`, COUNT documents of `_id`, the value, and `n`;
    DISTINCT those of all values.
    """
    scans = source.scans(span)
    if not scans:
        return None
    first, *others = (_fold(scan, _value(source, wanted), wanted) for scan in scans)
    unions = [
        {"$unionWith": {"coll": scan.collection, "pipeline": stages}}
        for scan, stages in zip(scans[1:], others, strict=True)
    ]
    together = [_group_again(wanted)] if unions else []
    return scans[0].collection, [*first, *unions, *together, *_shortened(wanted)]


def _value(source: Source, wanted: AggregateOf) -> Any:
    """The value as it counts: the keys of an ENUM of numbers are stored as texts.

    A text that is no number, of a time when the TSL had another type, does not count.
    """
    field = f"${source.field}"
    member = source.entity.member
    if (
        wanted in ("COUNT", "DISTINCT")
        or member.value_type != "LONG"
        or "enum" not in member.attribute
    ):
        return field
    return {"$convert": {"input": field, "to": "long", "onError": None}}


def _fold(scan: Scan, value: Any, wanted: AggregateOf) -> Stages:
    group: dict[str, Any] = {"_id": None}
    match wanted:
        case "MIN" | "MAX":
            group["v"] = {f"${wanted.lower()}": value}
        case "TOTAL":
            group |= {"v": {"$sum": value}, "n": {"$sum": 1}}
        case "COUNT" | "DISTINCT":
            group |= {"_id": value, "n": {"$sum": 1}}
    return [{"$match": scan.match}, {"$group": group}]


def _group_again(wanted: AggregateOf) -> dict[str, Any]:
    group: dict[str, Any] = {"_id": "$_id"}
    if wanted in ("MIN", "MAX"):
        group["v"] = {f"${wanted.lower()}": "$v"}
    else:
        group["n"] = {"$sum": "$n"}
    if wanted == "TOTAL":
        group["v"] = {"$sum": "$v"}
    return {"$group": group}


def _shortened(wanted: AggregateOf) -> Stages:
    if wanted != "COUNT":
        return []
    return [{"$sort": {"n": -1, "_id": 1}}, {"$limit": MOST_COUNTED}]
