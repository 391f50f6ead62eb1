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
from libs.common.http.console import Page, ids_of
from libs.common.http.streaming import Streamed, in_pieces
from libs.common.identity import Principal
from libs.common.integrations.client import Integrations, ShownIntegration
from libs.common.spreadsheet import csv_lines, safe_cell
from services.device.entities.history_store import Record, Source, Span, ValueStore
from services.device.entities.schemas import (
    MOST_ENTITIES,
    Aggregate,
    AggregateHistory,
    HistoryItem,
    SearchHistory,
    ValueCount,
)
from services.device.entities.service import EntityService
from services.device.members.entity import Entity
from services.device.members.members import shown_value
from services.device.telemetry.partitions import DAY_MS
from services.device.telemetry.retention import Retention
from services.device.telemetry.uplink import FUTURE_MS

LONGEST_LIST = 10_000
"""Most items of an answer without pages, the newest ones unless another order is asked."""
DIGITS = Decimal("1e-8")
"""What the mean of DOUBLEs is rounded to, half to even."""
EXACT = 1e15
"""From here on a double has no such digits; decimals, as they are written, have 15."""


@dataclass(frozen=True)
class EntityHistory:
    """History on behalf of users."""

    entities: EntityService
    store: ValueStore
    retention: Retention
    retention_days: int

    async def search(
        self, principal: Principal, body: SearchHistory
    ) -> Streamed[list[HistoryItem] | Page[HistoryItem]]:
        """Stream the values of one or some entities, together in the order of time.

        An entity that the user does not see has none.
        """
        order = body.order({"timestamp": "timestamp"}, [("timestamp", -1)])
        span = self.span(body.start_timestamp, body.end_timestamp, newest_first=order[0][1] == -1)
        given = [*(body.entity_ids or []), *([] if body.entity_id is None else [body.entity_id])]
        if not given:
            raise InvalidInput("entity_id is required", field="entity_id")
        if len(ids_of(given)) > MOST_ENTITIES:
            raise InvalidInput(f"must be at most {MOST_ENTITIES}", field="entity_ids")
        entities = await self.entities.visible(principal, ids_of(given))
        limit = body.size if body.paged else LONGEST_LIST
        sources = [await self.source(entity) for entity in entities]
        records, total = await self.store.page(sources, span, body.skip, limit)
        return body.streamed(_items(entities, records), total)

    async def aggregate(self, principal: Principal, body: AggregateHistory) -> Aggregate:
        """One value made of all that an entity had, or how often it had which.

        Nothing of an entity that the user does not see.
        """
        span = self.span(body.start_timestamp, body.end_timestamp)
        visible = await self.entities.visible(principal, [body.entity_id])
        if not visible:
            return Aggregate()
        entity = visible[0]
        kind, source = entity.member.value_type, await self.source(entity)
        match body.aggregate_type:
            case "LAST":
                found = await self.store.last(source, span)
                return Aggregate() if found is None else _shown(entity, found[2])
            case "AVG" | "SUM":
                if kind not in ("LONG", "DOUBLE"):
                    reason = f"{body.aggregate_type} is of numbers, this entity is a {kind}"
                    raise InvalidInput(reason, field="aggregate_type")
                return _total(entity, body, await self.store.aggregate(source, span, "TOTAL"))
            case "COUNT":
                return _counts(entity, await self.store.aggregate(source, span, "COUNT"))
            case "MIN" | "MAX" as wanted if kind == "BINARY":
                value = await self.store.extreme_bytes(source, span, wanted)
                return Aggregate() if value is None else _shown(entity, value)
            case wanted:
                rows = await self.store.aggregate(source, span, wanted)
                value = rows[0]["v"] if rows else None
                return Aggregate() if value is None else _shown(entity, value)

    async def source(self, entity: Entity) -> Source:
        """The values of an entity, as far back as its tenant and product keep them."""
        return Source(entity, await self.retention.oldest(entity.thing.tenant, entity.thing.model))

    def span(self, start: int | None, end: int | None, *, newest_first: bool = True) -> Span:
        """Return the bounds (ms), both inclusive, as far as history is kept.

        Raises `InvalidInput` when the end is before the start.
        """
        now = now_ms()
        first, last = start or 0, now if end is None else end
        if last < first:
            raise InvalidInput("must not be before start_timestamp", field="end_timestamp")
        oldest = max(now - self.retention_days * DAY_MS, 0)
        return Span(max(first, oldest), min(last, now + FUTURE_MS), newest_first)


async def _items(
    entities: Sequence[Entity], records: AsyncGenerator[Record, None]
) -> AsyncGenerator[HistoryItem, None]:
    """Yield records as items; those of one entity and time are counted, as they have no ids."""
    before, seen = 0, Counter[int]()
    async with aclosing(records):
        async for at, ts, value in records:
            if ts != before:
                before, seen = ts, Counter()
            yield _item(entities[at], ts, value, seen[at])
            seen[at] += 1


def _item(entity: Entity, ts: int, value: Any, before: int) -> HistoryItem:
    """`before` values of the page are of the same entity and time."""
    return HistoryItem(
        id=f"{entity.id}-{ts}-{before}",
        entity_id=str(entity.id),
        timestamp=ts,
        value=shown_value(entity.member, value),
        value_type=entity.member.value_type,
    )


def _shown(entity: Entity, value: Any) -> Aggregate:
    return Aggregate(value=shown_value(entity.member, value), value_type=entity.member.value_type)


def _total(entity: Entity, body: AggregateHistory, rows: Sequence[Any]) -> Aggregate:
    """The sum, or the mean: that of LONGs as it is, that of DOUBLEs rounded."""
    if not rows:
        return Aggregate()
    kind, total = entity.member.value_type, rows[0]["v"]
    value: int | float
    if body.aggregate_type == "SUM":
        value = total if kind == "LONG" else float(f"{total:.15g}")
    else:
        mean = total / rows[0]["n"]
        value = _rounded(mean) if kind == "DOUBLE" else mean
    return Aggregate(value=value, value_type=kind)


def _rounded(mean: float) -> float:
    if not abs(mean) < EXACT:
        return mean
    return float(Decimal(f"{mean:.15g}").quantize(DIGITS, ROUND_HALF_EVEN))


def _counts(entity: Entity, rows: Sequence[Any]) -> Aggregate:
    if not rows:
        return Aggregate()
    kind = entity.member.value_type
    return Aggregate(
        count_result=[
            ValueCount(
                value=shown_value(entity.member, row["_id"]), value_type=kind, count=row["n"]
            )
            for row in rows
        ]
    )


COLUMNS = ("Entity Name", "Entity Identifier", "Value", "Update Time", "Integration", "Device")
MOST_EXPORTED = 1000
"""Entities of one export."""


@dataclass(frozen=True)
class EntityExport:
    """Exports on behalf of users."""

    entities: EntityService
    history: EntityHistory
    store: ValueStore
    integrations: Integrations

    async def rows(
        self,
        principal: Principal,
        ids: Sequence[int],
        start: int | None,
        end: int | None,
        zone: str | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The lines of the file, the newest value of each entity first; times are of `zone`.

        Raises before the first line: `InvalidInput`, `NotFound` for an entity that the user
        does not see, `Forbidden` for a user without any grant.
        """
        wanted = ids_of(ids)
        if not 1 <= len(wanted) <= MOST_EXPORTED:
            raise InvalidInput(f"must be 1 to {MOST_EXPORTED} entities", field="ids")
        span, times = self.history.span(start, end), _zone_of(zone)
        entities = await self.entities.find_all(principal, wanted)
        integrations = await self.integrations.known()
        return in_pieces(self._lines(entities, span, integrations, times))

    async def _lines(
        self,
        entities: Sequence[Entity],
        span: Span,
        integrations: Mapping[str, ShownIntegration],
        zone: tzinfo,
    ) -> AsyncGenerator[bytes, None]:
        yield csv_lines([COLUMNS])
        for entity in entities:
            integration = integrations.get(entity.thing.integration)
            about = (integration.name if integration else "", entity.thing.name or "")
            source = await self.history.source(entity)
            async with aclosing(self.store.records(source, span)) as records:
                async for _, ts, value in records:
                    time = from_ms(ts).astimezone(zone)
                    yield csv_lines([_row(entity, time, value, about)])


def filename() -> str:
    """`EntityData_{time}.csv`, the time as ISO 8601 has it without separators."""
    return f"EntityData_{datetime.now(UTC):%Y%m%dT%H%M%SZ}.csv"


def _zone_of(name: str | None) -> tzinfo:
    """The time zone of an IANA name, UTC for none; raise `InvalidInput`."""
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput("is no time zone (IANA)", field="timezone") from error


def _row(entity: Entity, time: datetime, value: Any, about: tuple[str, str]) -> list[str]:
    shown = (safe_cell(entity.member.name), safe_cell(entity.key), _cell(entity, value))
    return [*shown, f"{time:%Y/%m/%d %H:%M:%S}", *map(safe_cell, about)]


def _cell(entity: Entity, stored: Any) -> str:
    """A value as text, an enumerated one by its label; only texts can be formulas."""
    value = shown_value(entity.member, stored)
    labels = entity.member.attribute.get("enum", {})
    if str(value) in labels:
        return safe_cell(str(labels[str(value)]))
    return safe_cell(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
