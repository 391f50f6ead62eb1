"""History as CSV (RFC 4180), row by row, however much there is."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from libs.common.clock import from_ms
from libs.common.errors import InvalidInput
from libs.common.http.console import ids_of
from libs.common.http.streaming import in_pieces
from libs.common.identity import Principal
from libs.common.integrations.client import Integrations, ShownIntegration
from libs.common.spreadsheet import csv_lines, safe_cell
from services.device.entities.history.service import EntityHistory
from services.device.entities.history.sources import Span
from services.device.entities.history.store import ValueStore
from services.device.entities.service import EntityService
from services.device.members.entity import Entity
from services.device.members.members import shown_value

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
