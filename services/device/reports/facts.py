"""Facts: reported properties that the device record shows, written when they change.

Their values and times are those of the latest values, so that an older report never overwrites
a newer fact; `factTimes` keeps the times in the record.

`lastUpdateTime` changes with every report; the device record carries it for sorting, at
most ten seconds old, and the exact value stands with the latest values.
"""

import time
from collections.abc import Iterable
from typing import Any

from libs.common.recent import Recent
from services.device.reports.batch import GoodReport
from services.device.things import Thing
from services.device.things.latest import LatestValues
from services.device.things.model import FACTS
from services.device.things.store import DeviceStore

FRESH = 10.0
"""Seconds between two writes of one device's `lastUpdateTime`."""
KEPT = 50_000
"""Devices whose last write of it is remembered; one that is forgotten is written once more."""
LARGEST_LEVEL = 2**31
"""A battery level beyond it is nonsense, and MongoDB could not store all of it."""


class Facts:
    """Keeps device records in step with what devices report."""

    def __init__(self, devices: DeviceStore, latest: LatestValues) -> None:
        self._devices = devices
        self._latest = latest
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
                newest[thing.id] = max(report.as_of, newest.get(thing.id, 0))
        await self._write_facts(changed)
        if newest:
            await self._devices.note_reports(newest)
            for key in newest:
                self._written.put(key, now)

    async def _write_facts(self, things: dict[int, Thing]) -> None:
        """Write what the latest values say, each fact unless the record has a newer one."""
        if not things:
            return
        written: dict[int, dict[str, Any]] = {}
        facts: list[tuple[int, str, Any, int]] = []
        for thing_id, latest in (await self._latest.some(things, FACTS)).items():
            shown = _facts({key: value for key, (value, _) in latest.items()})
            written[thing_id] = shown
            times = {FACTS[key]: ts for key, (_, ts) in latest.items()}
            facts += [(thing_id, name, value, times[name]) for name, value in shown.items()]
        await self._devices.note_facts(facts)
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
