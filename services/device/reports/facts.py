"""Facts: reported properties that the device record shows, written when they change.

Their values and times are those of the latest values, so that an older report never overwrites
a newer fact; `factTimes` keeps the times in the record.

`lastUpdateTime` changes with every report; the device record carries it for sorting, at
most ten seconds old, and the exact value stands with the latest values.
"""

import time
from collections.abc import Iterable
from typing import Any

from pymongo import UpdateOne

from libs.common.recent import Recent
from libs.common.store.mongo import Database
from services.device.reports.batch import GoodReport
from services.device.things import Thing
from services.device.things.directory import FACTS

FRESH = 10.0
"""Seconds between two writes of one device's `lastUpdateTime`."""
KEPT = 50_000
"""Devices whose last write of it is remembered; one that is forgotten is written once more."""
LARGEST_LEVEL = 2**31
"""A battery level beyond it is nonsense, and MongoDB could not store all of it."""


class Facts:
    """Keeps device records in step with what devices report."""

    def __init__(self, database: Database) -> None:
        self._devices = database["devices"]
        self._latest = database["latest"]
        self._written: Recent[int, float] = Recent(KEPT)

    async def note(self, reports: Iterable[GoodReport]) -> None:
        """Write changed facts of the devices of a batch, whose latest values are written."""
        now = time.monotonic()
        changed: dict[int, Thing] = {}
        newest: dict[int, int] = {}
        for report in reports:
            thing = report.thing
            shown = _facts(report.properties) if FACTS.keys() & report.properties.keys() else {}
            if shown.items() - thing.facts.items():
                changed[thing.id] = thing
            if (self._written.get(thing.id) or 0.0) + FRESH < now:
                newest[thing.id] = max(report.ts, newest.get(thing.id, 0))
        await self._write_facts(changed)
        if newest:
            await self._devices.bulk_write(
                [
                    UpdateOne({"_id": key}, {"$max": {"lastUpdateTime": ts}})
                    for key, ts in newest.items()
                ],
                ordered=False,
            )
            for key in newest:
                self._written.put(key, now)

    async def _write_facts(self, things: dict[int, Thing]) -> None:
        """Write what the latest values say, each fact unless the record has a newer one."""
        if not things:
            return
        fields = {f"v.{key}": 1 for key in FACTS}
        written: dict[int, dict[str, Any]] = {}
        operations = []
        async for latest in self._latest.find({"_id": {"$in": list(things)}}, fields):
            values = {key: entry["v"] for key, entry in latest["v"].items()}
            shown = written[latest["_id"]] = _facts(values)
            for key, entry in latest["v"].items():
                name = FACTS[key]
                if name in shown:
                    time_of = f"factTimes.{name}"
                    operations.append(
                        UpdateOne(
                            {"_id": latest["_id"], time_of: {"$not": {"$gt": entry["t"]}}},
                            {"$set": {name: shown[name], time_of: entry["t"]}},
                        )
                    )
        if operations:
            await self._devices.bulk_write(operations, ordered=False)
        for key, shown in written.items():
            things[key].facts.update(shown)


def _facts(properties: dict[str, Any]) -> dict[str, Any]:
    """The facts in a report, as the record shows them; what does not fit there is left out."""
    shown: dict[str, Any] = {}
    for key, name in FACTS.items():
        value = properties.get(key)
        if name == "electricity":
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                level = int(value)
                if abs(level) <= LARGEST_LEVEL:
                    shown[name] = level
        elif isinstance(value, str):
            shown[name] = value
    return shown
