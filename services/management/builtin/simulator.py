"""The integration `simulator`: virtual devices that report plausible values.

They run in a single replica, with one clock for all tenants.
"""

import asyncio
import heapq
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import Bus
from libs.common.contracts.events import DeviceChanged
from libs.common.contracts.integrations import (
    AddDevice,
    DeviceCommand,
    DeviceRef,
    NewDevice,
)
from libs.common.errors import InvalidInput, NotFound, ThingwayError
from libs.common.integrations import Integration, IntegrationThings
from libs.common.jobs import wait_for_event
from libs.common.scheduling import FairScheduler, LaneFull
from libs.common.simulation import SimulatedDevice
from libs.common.things import GENERIC_MODEL, device_key
from libs.common.tsl import TslDocument, parse_document
from services.management.manifests import load_manifest

log = logging.getLogger(__name__)

DEFAULT_REPORT_INTERVAL_SECONDS = 10
"""Seconds between the reports of a device."""
LISTING_INTERVAL_SECONDS = 60.0
"""Seconds between two listings of the devices; events announce changes sooner."""
MIN_LISTING_INTERVAL_SECONDS = 0.5
"""Minimum seconds between two listings."""
MAX_CONCURRENT_REPORTS = 32
"""Reports that are sent concurrently, of all tenants."""


class PeriodicSchedule:
    """Due times of keys, each with its own interval, on a monotonic clock."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._heap: list[tuple[float, int]] = []
        self._turns: dict[int, tuple[float, float]] = {}
        """Due time and interval by key; differing entries of the heap are outdated."""

    def __contains__(self, key: object) -> bool:
        return key in self._turns

    def schedule(self, key: int, interval: float, now: float) -> None:
        """Schedule a key; its first due time is random within the interval, to spread the load.

        A key that already has this interval keeps its due time.
        """
        turn = self._turns.get(key)
        if turn is None or turn[1] != interval:
            self._set_due(key, interval, now + self._rng.random() * interval)

    def remove(self, key: int) -> None:
        """Remove a key, if it exists."""
        self._turns.pop(key, None)

    def pop_due(self, now: float) -> list[int]:
        """Return the keys that are due, and schedule them again. Missed times are skipped."""
        due: list[int] = []
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            turn = self._turns.get(key)
            if turn is not None and turn[0] == at:
                due.append(key)
                following = at + turn[1]
                self._set_due(key, turn[1], following if following > now else now + turn[1])
        return due

    def next_due(self) -> float | None:
        """Return a time at or before the next due time; None without keys."""
        return self._heap[0][0] if self._heap else None

    def _set_due(self, key: int, interval: float, at: float) -> None:
        self._turns[key] = (at, interval)
        heapq.heappush(self._heap, (at, key))


class Simulator(Integration):
    """Simulates devices while `run` runs."""

    manifest = load_manifest("simulator")

    def __init__(self, things: IntegrationThings) -> None:
        self._things = things
        self._rng = random.Random()  # noqa: S311 - measurements are not secrets
        self._known: dict[int, DeviceRef] = {}
        self._virtual: dict[int, SimulatedDevice] = {}
        self._stale: set[int] = set()
        """Devices whose TSL may have changed."""
        self._wheel = PeriodicSchedule(self._rng)
        self._list_now = asyncio.Event()
        self._turned = asyncio.Event()
        self._reports = FairScheduler("simulator", MAX_CONCURRENT_REPORTS)
        self._failing = False

    async def add_device(self, request: AddDevice) -> NewDevice:
        """Generate an SN; `device` checks the product."""
        model, interval = request.params["model"], request.params.get("interval")
        if model == GENERIC_MODEL:
            raise InvalidInput("must have a TSL. `generic` cannot be simulated", field="model")
        return NewDevice(
            identifier=f"SIM{secrets.token_hex(6).upper()}",
            model=model,
            additional={
                "interval": DEFAULT_REPORT_INTERVAL_SECONDS if interval is None else interval
            },
        )

    async def delete_device(self, device: DeviceRef) -> None:
        """Stop simulating the device."""
        self.remove_device(device.device_id)

    async def command(self, request: DeviceCommand) -> None:
        """Execute a command, reply, and report the changes."""
        ref = request.device
        outcome = (await self._get_simulated_device(ref)).handle(request.command)
        reply = outcome.reply
        await self._things.send_reply(
            ref.tenant,
            ref.identifier,
            reply["commandId"],
            reply["status"],
            outputs=reply.get("outputs"),
            error=reply.get("error"),
        )
        if outcome.report:
            await self._things.report(ref.tenant, ref.identifier, outcome.report)

    def mark_outdated(self, device_id: int) -> None:
        """Mark a device as new or changed; its TSL may have changed."""
        self._stale.add(device_id)
        self._list_now.set()

    def remove_device(self, device_id: int) -> None:
        """Remove a deleted device."""
        self._known.pop(device_id, None)
        self._virtual.pop(device_id, None)
        self._stale.discard(device_id)
        self._wheel.remove(device_id)

    async def run(self) -> None:
        """Simulate the devices for ever."""
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(self._list_periodically())
            while True:
                self._turned.clear()
                for device_id in self._wheel.pop_due(time.monotonic()):
                    if (ref := self._known.get(device_id)) is not None:
                        jobs.create_task(self._report_values(ref))
                await self._wait_for_next_report()

    async def _wait_for_next_report(self) -> None:
        due = self._wheel.next_due()
        wait = None if due is None else max(0.0, due - time.monotonic())
        await wait_for_event(self._turned, wait)

    async def _list_periodically(self) -> None:
        while True:
            self._list_now.clear()
            try:
                await self._list_devices()
            except ThingwayError as error:
                log.warning("simulator: the devices cannot be listed: %s", error)
                self._list_now.set()
            await asyncio.sleep(MIN_LISTING_INTERVAL_SECONDS)
            await wait_for_event(self._list_now, LISTING_INTERVAL_SECONDS)

    async def _list_devices(self) -> None:
        devices = {device.device_id: device async for device in self._things.list_devices()}
        for deleted_device in self._known.keys() - devices.keys():
            self.remove_device(deleted_device)
        self._known = devices
        now = time.monotonic()
        for device in devices.values():
            self._wheel.schedule(device.device_id, _report_interval(device), now)
        self._turned.set()

    async def _report_values(self, ref: DeviceRef) -> None:
        """Report values; skip this turn if too many reports of the tenant wait."""
        try:
            async with self._reports.slot(ref.tenant):
                properties = (await self._get_simulated_device(ref)).measure()
                if properties:
                    await self._things.report(ref.tenant, ref.identifier, properties)
            self._failing = False
        except LaneFull:
            pass  # the scheduler counts it
        except NotFound:
            self.remove_device(ref.device_id)
        except InvalidInput as error:
            log.info("simulator: the TSL of device %d is read again: %s", ref.device_id, error)
            self._stale.add(ref.device_id)
        except ThingwayError as error:
            if not self._failing:
                log.warning("simulator: reports are not accepted: %s", error)
            self._failing = True

    async def _get_simulated_device(self, ref: DeviceRef) -> SimulatedDevice:
        device = self._virtual.get(ref.device_id)
        if device is not None and ref.device_id not in self._stale:
            return device
        self._stale.discard(ref.device_id)
        document = _parse_tsl(
            msgspec.json.encode(await self._things.get_tsl(ref.tenant, ref.identifier))
        )
        device = self._virtual.setdefault(ref.device_id, SimulatedDevice(document, self._rng))
        device.adopt(document)
        return device


def _report_interval(device: DeviceRef) -> int:
    return int(device.additional.get("interval", DEFAULT_REPORT_INTERVAL_SECONDS))


@lru_cache(maxsize=256)
def _parse_tsl(tsl: bytes) -> TslDocument:
    """Parse a TSL; devices with the same TSL share the cached document."""
    return parse_document(tsl, stored=True)


@asynccontextmanager
async def subscribe_to_device_changes(bus: Bus, simulator: Simulator) -> AsyncIterator[None]:
    """Notify the simulator of changed devices while the block runs; listings find the rest."""
    key_prefix = device_key(Simulator.manifest.id, "")

    async def on_change(message: Msg) -> None:
        event = msgspec.json.decode(message.data, type=DeviceChanged)
        if not event.device.thing_key.startswith(key_prefix):
            return
        if event.change == "deleted":
            simulator.remove_device(event.device.device_id)
        else:
            simulator.mark_outdated(event.device.device_id)

    subscriptions = [
        await bus.client.subscribe(f"event.*.device.*.{change}", cb=on_change)
        for change in ("added", "updated", "deleted")
    ]
    try:
        yield
    finally:
        if bus.is_connected:
            for subscription in subscriptions:
                await subscription.unsubscribe()
