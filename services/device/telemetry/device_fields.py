"""Copies reported properties into the fields of device records that show them.

Values and times come from the latest values, so an older report never overwrites a newer field;
`factTimes` in the record stores the times. `lastUpdateTime` may be ten seconds old, because only a
larger difference is written at once; the latest values have the exact time.
"""

import time
from collections.abc import Container, Iterable, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from libs.common.lru_cache import LruCache
from services.device.telemetry.batch import ValidReport
from services.device.telemetry.latest_values import LatestValues
from services.device.things.device_store import DeviceStore
from services.device.things.model import RECORD_FIELD_BY_PROPERTY, Location, Thing
from services.device.things.product_store import ProductStore

WRITE_INTERVAL_SECONDS = 10.0
"""Seconds within which a report that is hardly newer does not write `lastUpdateTime` again."""
CACHE_SIZE = 50_000
"""Maximum devices whose last write of `lastUpdateTime` is cached."""
LOCATION_CACHE_SECONDS = 5.0
"""Seconds between two reads of the location properties of products."""
MAX_BATTERY_LEVEL = 2**31
"""Maximum battery level; larger ones are invalid, and MongoDB could not store them all."""


class _WrittenTime(NamedTuple):
    at: float
    """Monotonic time of the write."""
    ts: int
    """The written `lastUpdateTime`, in ms."""

    def is_outdated(self, now: float, ts: int) -> bool:
        """Return whether a report at `ts` is written; `now` is a monotonic time."""
        is_old = self.at + WRITE_INTERVAL_SECONDS < now
        return is_old or ts > self.ts + WRITE_INTERVAL_SECONDS * 1000


class DeviceFieldUpdater:
    """Updates the fields of device records that show reported properties."""

    def __init__(self, devices: DeviceStore, latest: LatestValues, products: ProductStore) -> None:
        self._devices = devices
        self._latest = latest
        self._products = products
        self._places: dict[tuple[str, str], str] = {}
        self._read = -LOCATION_CACHE_SECONDS
        self._written: LruCache[int, _WrittenTime] = LruCache(CACHE_SIZE)

    async def update_report_times(self, reports: Iterable[ValidReport]) -> None:
        """Write `lastUpdateTime` of devices that did not get it recently, or an older one.

        `lastUpdateTime` does not depend on the latest values, so both are written concurrently.
        """
        now = time.monotonic()
        newest: dict[int, int] = {}
        for report in reports:
            thing, written = report.thing, self._written.get(report.thing.id)
            if written is None or written.is_outdated(now, report.effective_time):
                newest[thing.id] = max(report.effective_time, newest.get(thing.id, 0))
        if newest:
            await self._devices.reported_state.write_report_times(newest)
            for key, ts in newest.items():
                self._written.put(key, _WrittenTime(now, ts))

    async def update(self, reports: Iterable[ValidReport]) -> None:
        """Write the record fields that a batch changes, from latest values.

        The latest values of the batch must be stored already.
        """
        await self._refresh_location_properties()
        changed: dict[int, Thing] = {}
        for report in reports:
            thing, properties = report.thing, report.properties
            place = self._places.get((thing.tenant, thing.model)) if self._places else None
            if not _extract_fields(properties, place).items() <= thing.reported_fields.items():
                changed[thing.id] = thing
        await self._write_fields(changed)

    async def rewrite(
        self, things: dict[int, Thing], rewritten_times: Mapping[int, Container[int]]
    ) -> None:
        """Write the fields of devices whose latest values were rebuilt.

        First remove the fields that each device reported at its `rewritten_times` (ms).
        """
        await self._refresh_location_properties()
        await self._devices.reported_state.remove_fields_reported_at(rewritten_times)
        await self._write_fields(things)

    async def _refresh_location_properties(self) -> None:
        now = time.monotonic()
        if self._read + LOCATION_CACHE_SECONDS <= now:
            self._places, self._read = await self._products.list_location_properties(), now

    async def _write_fields(self, things: dict[int, Thing]) -> None:
        """Write the fields from latest values, each unless a newer one is stored."""
        if not things:
            return
        written: dict[int, dict[str, Any]] = {}
        fields: list[tuple[int, str, Any, int]] = []
        places = {
            thing_id: place
            for thing_id, thing in things.items()
            if (place := self._places.get((thing.tenant, thing.model)))
        }
        keys = {*RECORD_FIELD_BY_PROPERTY, *places.values()}
        for thing_id, latest in (await self._latest.find_values_with_times(things, keys)).items():
            place = places.get(thing_id)
            record_fields = _extract_fields(
                {key: value for key, (value, _) in latest.items()}, place
            )
            written[thing_id] = record_fields
            times = {
                RECORD_FIELD_BY_PROPERTY[key]: ts
                for key, (_, ts) in latest.items()
                if key in RECORD_FIELD_BY_PROPERTY
            }
            if place in latest:
                times["location"] = latest[place][1]
            fields += [
                (thing_id, name, msgspec.to_builtins(value), times[name])
                for name, value in record_fields.items()
            ]
        await self._devices.reported_state.write_fields(fields)
        for key, record_fields in written.items():
            things[key].reported_fields.update(record_fields)


def _extract_fields(properties: dict[str, Any], location_property: str | None) -> dict[str, Any]:
    """Return the record fields in reported properties; omit values of a wrong type."""
    record_fields: dict[str, Any] = {}
    if location_property in properties:
        location = _parse_location(properties[location_property])
        if location is not None:
            record_fields["location"] = location
    for key, name in RECORD_FIELD_BY_PROPERTY.items():
        if key not in properties:
            continue
        value = properties[key]
        if name == "electricity":
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                level = int(value)
                if abs(level) <= MAX_BATTERY_LEVEL:
                    record_fields[name] = level
        elif isinstance(value, str):
            record_fields[name] = value
    return record_fields


def _parse_location(value: Any) -> Location | None:
    """Return a reported location; None without a latitude and longitude in their ranges."""
    try:
        return msgspec.convert(value, _ReportedLocation).location
    except msgspec.ValidationError:
        return None


class _ReportedLocation(msgspec.Struct):
    latitude: Annotated[float, msgspec.Meta(ge=-90, le=90)]
    longitude: Annotated[float, msgspec.Meta(ge=-180, le=180)]

    @property
    def location(self) -> Location:
        return Location(self.latitude, self.longitude)
