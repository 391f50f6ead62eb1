"""History of entities: pages, aggregates, and export as CSV."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from libs.common.clock import from_ms, now_ms
from libs.common.errors import InvalidInput
from libs.common.http.console import Page, distinct_ids
from libs.common.http.streaming import StreamedAnswer, join_pieces
from libs.common.identity import Principal
from libs.common.integrations.client import Integrations, IntegrationSummary
from libs.common.spreadsheet import encode_csv, escape_cell
from services.device.entities.history_store import (
    SourceTimeValue,
    TimeSpan,
    ValueSource,
    ValueStore,
)
from services.device.entities.schemas import (
    MAX_HISTORY_ENTITIES,
    Aggregate,
    AggregateHistory,
    HistoryItem,
    SearchHistory,
    ValueCount,
)
from services.device.entities.service import EntityService
from services.device.members.entity import Entity
from services.device.members.members import convert_stored_value
from services.device.telemetry.partitions import DAY_MS
from services.device.telemetry.retention import Retention
from services.device.telemetry.uplink import MAX_CLOCK_AHEAD_MS

MAX_UNPAGED_ITEMS = 10_000
"""Maximum items of a response without pages."""
MEAN_ROUNDING_STEP = Decimal("1e-8")
"""Precision of the mean of DOUBLEs, rounded half to even."""
MAX_ROUNDED_MEAN = 1e15
"""Means whose absolute value reaches this limit are not rounded: a double lacks that precision."""


@dataclass(frozen=True)
class EntityHistory:
    """Reads history of entities for users."""

    entities: EntityService
    store: ValueStore
    retention: Retention
    retention_days: int

    async def search(
        self, principal: Principal, body: SearchHistory
    ) -> StreamedAnswer[list[HistoryItem] | Page[HistoryItem]]:
        """Stream the values of entities, merged in the order of time.

        Hidden entities have no values.
        """
        order = body.order({"timestamp": "timestamp"}, [("timestamp", -1)])
        span = self.build_time_span(
            body.start_timestamp, body.end_timestamp, newest_first=order[0][1] == -1
        )
        entity_ids = [
            *(body.entity_ids or []),
            *([] if body.entity_id is None else [body.entity_id]),
        ]
        if not entity_ids:
            raise InvalidInput("entity_id is required", field="entity_id")
        if len(distinct_ids(entity_ids)) > MAX_HISTORY_ENTITIES:
            raise InvalidInput(f"must be at most {MAX_HISTORY_ENTITIES}", field="entity_ids")
        entities = await self.entities.find_visible(principal, distinct_ids(entity_ids))
        limit = body.size if body.is_paged else MAX_UNPAGED_ITEMS
        sources = [await self.build_value_source(entity) for entity in entities]
        records, total = await self.store.read_page(sources, span, body.skip, limit)
        return body.streamed(_to_history_items(entities, records), total)

    async def aggregate(self, principal: Principal, body: AggregateHistory) -> Aggregate:
        """Return an aggregate of an entity's values; empty for a hidden entity."""
        span = self.build_time_span(body.start_timestamp, body.end_timestamp)
        visible = await self.entities.find_visible(principal, [body.entity_id])
        if not visible:
            return Aggregate()
        entity = visible[0]
        kind, source = entity.member.value_type, await self.build_value_source(entity)
        match body.aggregate_type:
            case "LAST":
                newest = await self.store.find_newest(source, span)
                return Aggregate() if newest is None else _to_aggregate(entity, newest[2])
            case "AVG" | "SUM":
                if kind not in ("LONG", "DOUBLE"):
                    reason = f"{body.aggregate_type} requires a number. The entity is a {kind}"
                    raise InvalidInput(reason, field="aggregate_type")
                return _to_sum_or_mean(
                    entity, body, await self.store.aggregate(source, span, "TOTAL")
                )
            case "COUNT":
                return _to_counts(entity, await self.store.aggregate(source, span, "COUNT"))
            case "MIN" | "MAX" as wanted if kind == "BINARY":
                value = await self.store.find_extreme_binary(source, span, wanted)
                return Aggregate() if value is None else _to_aggregate(entity, value)
            case wanted:
                rows = await self.store.aggregate(source, span, wanted)
                value = rows[0]["v"] if rows else None
                return Aggregate() if value is None else _to_aggregate(entity, value)

    async def build_value_source(self, entity: Entity) -> ValueSource:
        """Return the source of an entity's values within its retention."""
        return ValueSource(
            entity, await self.retention.oldest_kept_time(entity.thing.tenant, entity.thing.model)
        )

    def build_time_span(
        self, start: int | None, end: int | None, *, newest_first: bool = True
    ) -> TimeSpan:
        """Return the bounds (ms), both inclusive, within the retention and the allowed clock error.

        Raises `InvalidInput` when the end is before the start.
        """
        now = now_ms()
        first, last = start or 0, now if end is None else end
        if last < first:
            raise InvalidInput("must not be before start_timestamp", field="end_timestamp")
        oldest = max(now - self.retention_days * DAY_MS, 0)
        return TimeSpan(max(first, oldest), min(last, now + MAX_CLOCK_AHEAD_MS), newest_first)


async def _to_history_items(
    entities: Sequence[Entity], records: AsyncGenerator[SourceTimeValue, None]
) -> AsyncGenerator[HistoryItem, None]:
    """Yield records as items; number those of the same entity and time, as records have no ids."""
    before, counts = 0, Counter[int]()
    async with aclosing(records):
        async for source_index, ts, value in records:
            if ts != before:
                before, counts = ts, Counter()
            yield _to_history_item(entities[source_index], ts, value, counts[source_index])
            counts[source_index] += 1


def _to_history_item(entity: Entity, ts: int, value: Any, before: int) -> HistoryItem:
    """Return an item; `before` is the number of earlier items of the same entity and time."""
    return HistoryItem(
        id=f"{entity.id}-{ts}-{before}",
        entity_id=str(entity.id),
        timestamp=ts,
        value=convert_stored_value(entity.member, value),
        value_type=entity.member.value_type,
    )


def _to_aggregate(entity: Entity, value: Any) -> Aggregate:
    return Aggregate(
        value=convert_stored_value(entity.member, value), value_type=entity.member.value_type
    )


def _to_sum_or_mean(entity: Entity, body: AggregateHistory, rows: Sequence[Any]) -> Aggregate:
    """Return the sum or the mean; both are rounded for DOUBLE."""
    if not rows:
        return Aggregate()
    kind, total = entity.member.value_type, rows[0]["v"]
    value: int | float
    if body.aggregate_type == "SUM":
        value = total if kind == "LONG" else float(f"{total:.15g}")
    else:
        mean = total / rows[0]["n"]
        value = _round_mean(mean) if kind == "DOUBLE" else mean
    return Aggregate(value=value, value_type=kind)


def _round_mean(mean: float) -> float:
    if not abs(mean) < MAX_ROUNDED_MEAN:
        return mean
    return float(Decimal(f"{mean:.15g}").quantize(MEAN_ROUNDING_STEP, ROUND_HALF_EVEN))


def _to_counts(entity: Entity, rows: Sequence[Any]) -> Aggregate:
    if not rows:
        return Aggregate()
    kind = entity.member.value_type
    return Aggregate(
        count_result=[
            ValueCount(
                value=convert_stored_value(entity.member, row["_id"]),
                value_type=kind,
                count=row["n"],
            )
            for row in rows
        ]
    )


CSV_HEADER = ("Entity Name", "Entity Identifier", "Value", "Update Time", "Integration", "Device")
MAX_EXPORTED_ENTITIES = 1000
"""Maximum entities of an export."""


@dataclass(frozen=True)
class EntityExport:
    """Exports history for users."""

    entities: EntityService
    history: EntityHistory
    store: ValueStore
    integrations: Integrations

    async def export_lines(
        self,
        principal: Principal,
        ids: Sequence[int],
        start: int | None,
        end: int | None,
        zone: str | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Return the lines of the file, newest values of each entity first.

        Hidden entities are left out. Raises before the first line: `InvalidInput`, `NotFound` if
        all entities are hidden, `Forbidden` for a user without any grant.
        """
        entity_ids = distinct_ids(ids)
        if not 1 <= len(entity_ids) <= MAX_EXPORTED_ENTITIES:
            raise InvalidInput(f"must be 1 to {MAX_EXPORTED_ENTITIES} entities", field="ids")
        span, times = self.history.build_time_span(start, end), _parse_zone(zone)
        entities = await self.entities.find_visible_or_raise(principal, entity_ids)
        integrations = await self.integrations.list_summaries()
        return join_pieces(self._csv_lines(entities, span, integrations, times))

    async def _csv_lines(
        self,
        entities: Sequence[Entity],
        span: TimeSpan,
        integrations: Mapping[str, IntegrationSummary],
        zone: tzinfo,
    ) -> AsyncGenerator[bytes, None]:
        yield encode_csv([CSV_HEADER])
        for entity in entities:
            integration = integrations.get(entity.thing.integration)
            about = (integration.name if integration else "", entity.thing.name or "")
            source = await self.history.build_value_source(entity)
            async with aclosing(self.store.iterate_values(source, span)) as records:
                async for _, ts, value in records:
                    time = from_ms(ts).astimezone(zone)
                    yield encode_csv([_csv_row(entity, time, value, about)])


def export_filename() -> str:
    """Return `EntityData_{time}.csv` with the time in ISO 8601 without separators."""
    return f"EntityData_{datetime.now(UTC):%Y%m%dT%H%M%SZ}.csv"


def _parse_zone(name: str | None) -> tzinfo:
    """Return the time zone of an IANA name, by default UTC; raise `InvalidInput`."""
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput("must be the IANA name of a time zone", field="timezone") from error


def _csv_row(entity: Entity, time: datetime, value: Any, about: tuple[str, str]) -> list[str]:
    cells = (escape_cell(entity.member.name), escape_cell(entity.key), _format_cell(entity, value))
    return [*cells, f"{time:%Y/%m/%d %H:%M:%S}", *map(escape_cell, about)]


def _format_cell(entity: Entity, stored: Any) -> str:
    """Return a value as text, or the label of an enumeration."""
    value = convert_stored_value(entity.member, stored)
    labels = entity.member.attribute.get("enum", {})
    if str(value) in labels:
        return escape_cell(str(labels[str(value)]))
    return escape_cell(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
