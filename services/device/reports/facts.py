"""Facts: reported properties that the device record shows, written when they change.

A report that is older than what the record has seen changes none of them.

`lastUpdateTime` changes with every report; the device record carries it for sorting, at
most ten seconds old, and the exact value stands with the latest values.
"""

import time
from collections.abc import Iterable
from typing import Any

from pymongo import UpdateOne

from libs.common.store.mongo import Database
from services.device.reports.batch import GoodReport
from services.device.things import Thing
from services.device.things.directory import FACTS

FRESH = 10.0
"""Seconds between two writes of one device's `lastUpdateTime`."""
LARGEST_LEVEL = 2**31
"""A battery level beyond it is nonsense, and MongoDB could not store all of it."""


class Facts:
    """Keeps device records in step with what devices report."""

    def __init__(self, database: Database) -> None:
        self._devices = database["devices"]
        self._written: dict[int, float] = {}

    async def note(self, reports: Iterable[GoodReport]) -> None:
        """Write changed facts of the devices of a batch."""
        now = time.monotonic()
        changes: dict[int, tuple[Thing, int, dict[str, Any]]] = {}
        newest: dict[int, int] = {}
        for report in sorted(reports, key=lambda one: one.ts):
            thing = report.thing
            shown = _facts(report.properties) if FACTS.keys() & report.properties.keys() else {}
            if shown:
                earlier = changes[thing.id][2] if thing.id in changes else {}
                changes[thing.id] = (thing, report.ts, {**earlier, **shown})
            if self._written.get(thing.id, 0.0) + FRESH < now:
                newest[thing.id] = report.ts
        operations = [
            UpdateOne({"_id": key, "lastUpdateTime": {"$not": {"$gt": ts}}}, {"$set": shown})
            for key, (thing, ts, shown) in changes.items()
            if shown.items() - thing.facts.items()
        ]
        operations += [
            UpdateOne({"_id": key}, {"$max": {"lastUpdateTime": ts}}) for key, ts in newest.items()
        ]
        if operations:
            result = await self._devices.bulk_write(operations)
            self._written.update(dict.fromkeys(newest, now))
            if result.matched_count == len(operations):
                for thing, _, shown in changes.values():
                    thing.facts.update(shown)


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
