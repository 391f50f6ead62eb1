"""Operations of users on alarms, and removal of write-only values."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from libs.common.clock import from_ms
from libs.common.errors import InvalidInput, NotFound
from libs.common.http.console import Page, distinct_ids
from libs.common.http.streaming import StreamedAnswer, join_pieces, map_batches
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants
from libs.common.spreadsheet import encode_csv, escape_cell
from libs.common.store.mongo import Document, build_text_condition
from libs.common.tsl import Tsl
from services.device.alarms.model import Alarm, RuleCondition, ValueCondition, state_key
from services.device.alarms.rules import RuleStore
from services.device.alarms.schemas import (
    MAX_ALARMS_PER_REQUEST,
    AlarmCounts,
    AlarmResponse,
    ClaimAlarms,
    ClearAlarms,
    SearchAlarms,
)
from services.device.alarms.store import AlarmStore
from services.device.things.device_store import DeviceStore
from services.device.things.model import Location

SORT_FIELD_BY_COLUMN = {
    "id": "_id",
    "alarm_time": "raisedAt",
    "alarm_content": "content",
    "device_name": "deviceName",
    "cleared_time": "clearedAt",
    "claimed_time": "claimedAt",
}
"""Stored field of each sort key of alarms."""
NEWEST_FIRST = [("raisedAt", -1), ("_id", -1)]
MAX_EXPORTED_ALARMS = 100_000
"""Maximum alarms of a file; the newest are exported."""
CSV_HEADER = (
    "Alarm Time",
    "Severity",
    "Content",
    "Device Name",
    "Value",
    "Cleared Time",
    "Claimed Time",
    "Claimed By",
    "Note",
)


@dataclass(frozen=True)
class AlarmService:
    """Operations of users on alarms."""

    store: AlarmStore
    devices: DeviceStore
    grants: GrantReader

    async def search(
        self, principal: Principal, request: SearchAlarms
    ) -> StreamedAnswer[Page[AlarmResponse]]:
        """Stream the alarms that the user may see, newest first by default."""
        order = request.order(SORT_FIELD_BY_COLUMN, NEWEST_FIRST)
        query = await self._build_query(principal, request)

        async def to_responses(alarms: Sequence[Alarm]) -> list[AlarmResponse]:
            places = await self._read_locations(principal.tenant, alarms)
            return [_alarm_response(alarm, places.get(alarm.device)) for alarm in alarms]

        rows = self.store.queries.iterate_alarms(query, order, request.skip, request.size)
        return request.streamed_page(
            map_batches(rows, to_responses), await self.store.queries.count_matching(query)
        )

    async def count(self, principal: Principal, request: SearchAlarms) -> AlarmCounts:
        """Return how many alarms a search finds."""
        counts = await self.store.queries.count_groups(await self._build_query(principal, request))
        numbers = AlarmCounts(total=0, open=0, unclaimed=0, open_by_severity={})
        for severity, is_open, claimed, number in counts:
            numbers.total += number
            numbers.unclaimed += 0 if claimed else number
            if is_open:
                numbers.open += number
                counted: Any = numbers.open_by_severity
                counted[severity] = counted.get(severity, 0) + number
        return numbers

    async def claim(self, principal: Principal, body: ClaimAlarms) -> None:
        """Claim alarms for the user; ignore claimed and hidden ones.

        Raises `NotFound` for a device that the user may not see, and `InvalidInput` unless the body
        has either `device_id` or `alarm_ids`.
        """
        if (body.device_id is None) == (body.alarm_ids is None):
            raise InvalidInput("either device_id or alarm_ids is required", field="device_id")
        grants = await self.grants.read(principal)
        query: Document = {"tenant": principal.tenant, "claimedAt": None}
        if body.device_id is not None:
            device_id = body.device_id
            devices = await self.devices.queries.list_by_ids(principal.tenant, [device_id])
            if not any(
                grants.allows_device(device.id, device.integration, device.group)
                for device in devices
            ):
                raise NotFound(f"device {device_id} not found", field="device_id")
            query["device"] = device_id
        else:
            query["_id"] = {"$in": distinct_ids(body.alarm_ids or [])}
            query.update(await self._visible_condition(principal.tenant, grants))
        while ids := await self.store.queries.list_ids(query, MAX_ALARMS_PER_REQUEST):
            await self.store.claim(ids, principal.subject, principal.name, body.note)
            query["$nor"] = [{"_id": {"$lte": ids[-1]}}]

    async def clear(self, principal: Principal, body: ClearAlarms) -> None:
        """Clear alarms by hand; ignore cleared and hidden ones."""
        query: Document = {
            "tenant": principal.tenant,
            "_id": {"$in": distinct_ids(body.alarm_ids)},
            **await self._visible_condition(principal.tenant, await self.grants.read(principal)),
        }
        ids = await self.store.queries.list_ids(query, MAX_ALARMS_PER_REQUEST)
        await self.store.clear(ids, principal.subject, body.note)

    async def export(
        self, principal: Principal, request: SearchAlarms, timezone: str
    ) -> AsyncGenerator[bytes, None]:
        """Return the content of a CSV file; raise `InvalidInput` for an unknown `timezone`."""
        try:
            zone = ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise InvalidInput(
                f"must be the name of a time zone. Got {timezone}", field="timezone"
            ) from error
        return join_pieces(self._csv_lines(await self._build_query(principal, request), zone))

    async def _csv_lines(self, query: Document, zone: tzinfo) -> AsyncGenerator[bytes, None]:
        yield encode_csv([CSV_HEADER])
        found = self.store.queries.iterate_alarms(query, NEWEST_FIRST, 0, MAX_EXPORTED_ALARMS)
        async with aclosing(found) as alarms:
            async for alarm in alarms:
                yield encode_csv([_csv_row(alarm, zone)])

    async def _build_query(self, principal: Principal, request: SearchAlarms) -> Document:
        """Return the query of a filter, limited to devices that the user may see."""
        visibility = await self._visible_condition(
            principal.tenant, await self.grants.read(principal)
        )
        query: Document = {"tenant": principal.tenant, **visibility}
        conditions: list[Document] = []
        if request.keyword:
            part = build_text_condition(request.keyword)
            conditions.append({"$or": [{"content": part}, {"deviceName": part}]})
        if request.device_ids:
            conditions.append({"device": {"$in": distinct_ids(request.device_ids)}})
        if request.alarm_status and len(set(request.alarm_status)) == 1:
            unclaimed = request.alarm_status[0]
            conditions.append({"claimedAt": None if unclaimed else {"$ne": None}})
        if conditions:
            query["$and"] = conditions
        bounds = {"$gte": request.start_timestamp, "$lte": request.end_timestamp}
        if given_bounds := {name: ms for name, ms in bounds.items() if ms is not None}:
            query["raisedAt"] = given_bounds
        if request.open is not None:
            query["open"] = request.open
        if request.severity:
            query["severity"] = {"$in": request.severity}
        if request.rule_id is not None:
            query["rule"] = request.rule_id
        return query

    async def _visible_condition(self, tenant: str, grants: Grants) -> Document:
        """Return the query of alarms that grants allow; a group includes its current devices."""
        if grants.everything:
            return {}
        granted = grants.resources
        inside = await self.devices.queries.list_granted_ids(
            tenant, {"group": {"$in": list(granted.groups)}}
        )
        devices = {"device": {"$in": [*granted.devices, *inside]}}
        return {"$or": [devices, {"integration": {"$in": list(granted.integrations)}}]}

    async def _read_locations(self, tenant: str, alarms: Sequence[Alarm]) -> dict[int, Location]:
        devices = await self.devices.find_all(tenant, list({alarm.device for alarm in alarms}))
        return {device.id: device.location for device in devices if device.location is not None}


def _alarm_response(alarm: Alarm, place: Location | None) -> AlarmResponse:
    return AlarmResponse.from_fields(
        alarm,
        alarm_status=alarm.claimed_at is None,
        alarm_time=alarm.raised_at,
        alarm_content=alarm.content,
        device_id=str(alarm.device),
        latitude=place.latitude if place else None,
        longitude=place.longitude if place else None,
        address=place.address if place else None,
        rule_id=None if alarm.rule is None else str(alarm.rule),
        flow_id=None if alarm.flow is None else str(alarm.flow),
        cleared_time=alarm.cleared_at,
        claimed_time=alarm.claimed_at,
    )


def _csv_row(alarm: Alarm, zone: tzinfo) -> list[str]:
    def format_time(ms: int | None) -> str:
        return "" if ms is None else f"{from_ms(ms).astimezone(zone):%Y/%m/%d %H:%M:%S}"

    value = alarm.value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return [
        format_time(alarm.raised_at),
        alarm.severity,
        escape_cell(alarm.content),
        escape_cell(alarm.device_name),
        "" if value is None else escape_cell(text) if isinstance(value, str) else text,
        format_time(alarm.cleared_at),
        format_time(alarm.claimed_at),
        escape_cell(alarm.claimed_name or ""),
        escape_cell(alarm.note or ""),
    ]


@dataclass(frozen=True)
class AlarmValueEraser:
    """Removes from alarms and their states the values that a TSL declares write-only."""

    alarms: AlarmStore
    rules: RuleStore

    async def erase_write_only(self, device_id: int, tsl: Tsl) -> bool:
        """Remove values of a device's alarms and states that may be write-only.

        Return whether any value was removed. A value stays when its rule is unchanged and watches a
        readable property. The property of a changed or deleted rule is unknown.
        """
        rules = await self.rules.find_all(await self.alarms.list_rules_with_values(device_id))
        kept_states = [
            state_key(rule.id, rule.generation, device_id)
            for rule in rules.values()
            if not _compares_write_only(rule.condition, tsl)
        ]
        return await self.alarms.erase_values(device_id, kept_states)


def _compares_write_only(condition: RuleCondition, tsl: Tsl) -> bool:
    """Return whether a condition compares a write-only value."""
    return isinstance(condition, ValueCondition) and not tsl.readable({condition.property: 0})
