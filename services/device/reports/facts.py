"""Facts: reported properties that the device record shows, written when they change.

`lastUpdateTime` changes with every report; the device record carries it for sorting, at
most ten seconds old, and the exact value stands with the latest values.
"""

import time
from collections.abc import Iterable
from typing import Any

from pymongo import UpdateOne

from libs.common.store.mongo import Database
from services.device.reports.batch import GoodReport
from services.device.things.directory import FACTS, Thing, ThingDirectory

FRESH = 10.0
"""Seconds between two writes of one device's `lastUpdateTime`."""


class Facts:
    """Keeps device records in step with what devices report."""

    def __init__(self, database: Database, things: ThingDirectory) -> None:
        self._devices = database["devices"]
        self._things = things
        self._written: dict[int, float] = {}

    async def note(self, reports: Iterable[GoodReport]) -> None:
        """Write changed facts of the devices of a batch."""
        now = time.monotonic()
        updates: dict[int, dict[str, Any]] = {}
        newest: dict[int, int] = {}
        for report in reports:
            thing = report.thing
            changed = _changed(thing, report.properties)
            if changed:
                updates.setdefault(thing.id, {}).update(changed)
            if self._written.get(thing.id, 0.0) + FRESH < now:
                newest[thing.id] = max(report.ts, newest.get(thing.id, 0))
        operations = [
            UpdateOne(
                {"_id": key},
                {
                    **({"$set": updates[key]} if key in updates else {}),
                    **({"$max": {"lastUpdateTime": newest[key]}} if key in newest else {}),
                },
            )
            for key in updates.keys() | newest.keys()
        ]
        if operations:
            await self._devices.bulk_write(operations, ordered=False)
            self._written.update(dict.fromkeys(newest, now))
            for key in updates:
                self._things.forget(key)


def _changed(thing: Thing, properties: dict[str, Any]) -> dict[str, Any]:
    changed = {}
    for key, name in FACTS.items():
        value = properties.get(key)
        if value is not None and isinstance(value, (str, int, float)):
            shown = int(value) if name == "electricity" and _is_number(value) else value
            if shown != thing.facts.get(name) and _fits(name, shown):
                changed[name] = shown
    return changed


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _fits(name: str, value: object) -> bool:
    return _is_number(value) if name == "electricity" else isinstance(value, str)
