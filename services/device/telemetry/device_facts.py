"""Facts: reported properties that the device record shows, written when they change.

Their values and times are those of the latest values, so that an older report never overwrites
a newer fact; `factTimes` keeps the times in the record.

`lastUpdateTime` changes with every report; the device record carries it for sorting, at
most ten seconds old, and the exact value stands with the latest values.
"""

import time
from collections.abc import Container, Iterable, Mapping
from typing import Annotated, Any

import msgspec

from libs.common.lru_cache import LruCache
from services.device.telemetry.batch import GoodReport
from services.device.telemetry.latest_values import LatestValues
from services.device.things.device_store import DeviceStore
from services.device.things.model import FACTS, Location, Thing
from services.device.things.product_store import ProductStore

FRESH = 10.0
"""Seconds between two writes of one device's `lastUpdateTime`."""
KEPT = 50_000
"""Devices whose last write of it is remembered; one that is forgotten is written once more."""
LIFE = 5.0
"""Seconds after which it is read anew which products name a property for the place."""
LARGEST_LEVEL = 2**31
"""A battery level beyond it is nonsense, and MongoDB could not store all of it."""


class Facts:
    """Keeps device records in step with what devices report."""

    def __init__(self, devices: DeviceStore, latest: LatestValues, products: ProductStore) -> None:
        self._devices = devices
        self._latest = latest
        self._products = products
        self._places: dict[tuple[str, str], str] = {}
        self._read = -LIFE
        self._written: LruCache[int, float] = LruCache(KEPT)

    async def note(self, reports: Iterable[GoodReport]) -> None:
        """Write changed facts of the devices of a batch, whose latest values are written."""
        now = time.monotonic()
        await self._read_places()
        changed: dict[int, Thing] = {}
        newest: dict[int, int] = {}
        for report in reports:
            thing, properties = report.thing, report.properties
            place = self._places.get((thing.tenant, thing.model)) if self._places else None
            if not _facts(properties, place).items() <= thing.facts.items():
                changed[thing.id] = thing
            if (self._written.get(thing.id) or 0.0) + FRESH < now:
                newest[thing.id] = max(report.as_of, newest.get(thing.id, 0))
        await self._write_facts(changed)
        if newest:
            await self._devices.notes.reports(newest)
            for key in newest:
                self._written.put(key, now)

    async def renew(
        self, things: dict[int, Thing], rewritten: Mapping[int, Container[int]]
    ) -> None:
        """Write what the latest values of devices say that were made anew.

        Facts of times (ms) of `rewritten`, by device, go before.
        """
        await self._read_places()
        await self._devices.notes.forget_facts(rewritten)
        await self._write_facts(things)

    async def _read_places(self) -> None:
        now = time.monotonic()
        if self._read + LIFE <= now:
            self._places, self._read = await self._products.location_properties(), now

    async def _write_facts(self, things: dict[int, Thing]) -> None:
        """Write what the latest values say, each fact unless the record has a newer one."""
        if not things:
            return
        written: dict[int, dict[str, Any]] = {}
        facts: list[tuple[int, str, Any, int]] = []
        places = {
            thing_id: place
            for thing_id, thing in things.items()
            if (place := self._places.get((thing.tenant, thing.model)))
        }
        keys = {*FACTS, *places.values()}
        for thing_id, latest in (await self._latest.some(things, keys)).items():
            place = places.get(thing_id)
            shown = _facts({key: value for key, (value, _) in latest.items()}, place)
            written[thing_id] = shown
            times = {FACTS[key]: ts for key, (_, ts) in latest.items() if key in FACTS}
            if place in latest:
                times["location"] = latest[place][1]
            facts += [
                (thing_id, name, msgspec.to_builtins(value), times[name])
                for name, value in shown.items()
            ]
        await self._devices.notes.facts(facts)
        for key, shown in written.items():
            things[key].facts.update(shown)


def _facts(properties: dict[str, Any], place: str | None) -> dict[str, Any]:
    """The facts in a report, as the record shows them; what does not fit there is left out.

    `place` is the property that says where the device is.
    """
    shown: dict[str, Any] = {}
    if place in properties and (location := _location(properties[place])) is not None:
        shown["location"] = location
    for key, name in FACTS.items():
        if key not in properties:
            continue
        value = properties[key]
        if name == "electricity":
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                level = int(value)
                if abs(level) <= LARGEST_LEVEL:
                    shown[name] = level
        elif isinstance(value, str):
            shown[name] = value
    return shown


def _location(value: Any) -> Location | None:
    """A place in a report; one beyond the poles is none."""
    try:
        return msgspec.convert(value, _Place).location
    except msgspec.ValidationError:
        return None


class _Place(msgspec.Struct):
    latitude: Annotated[float, msgspec.Meta(ge=-90, le=90)]
    longitude: Annotated[float, msgspec.Meta(ge=-180, le=180)]

    @property
    def location(self) -> Location:
        return Location(self.latitude, self.longitude)
