"""`thingway simulate`: many devices that report over MQTT at a total rate."""

import asyncio
import contextlib
import itertools
import json
import random
import signal
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import aiomqtt
import msgspec
from rich.console import Console
from rich.live import Live

from deploy.local.products import open_platform
from deploy.local.simulator import DemoDevice
from deploy.local.supervisor import RestartBackoff
from deploy.platform import state as states
from deploy.platform.bootstrap import read_demo_product
from deploy.platform.errors import LauncherError
from deploy.platform.files import write_private
from deploy.platform.openapi import OpenApiClient
from libs.common.jobs import cancel_and_wait, gather_limited, wait_for_event
from libs.common.tls import parse_mqtt_urls

KEYS_FILE_NAME = "simulated.json"
_CONCURRENT_REQUESTS = 8
_DEVICES_CREATED_PER_SAVE = 100
"""Devices that are created between two writes of the file of keys."""


async def ensure_devices(
    api: OpenApiClient, directory: Path, count: int, created: Callable[[int], None]
) -> dict[str, str]:
    """Return the key of each of `count` devices of the demo product by SN.

    Creates missing devices. `created` is called with the number of known devices after each batch.
    The next run continues an interrupted one.
    """
    keys = _load_keys(directory)
    serials = [f"DEMOSIM{number:09d}" for number in range(1, count + 1)]
    missing = [sn for sn in serials if sn not in keys]
    if missing:
        model = read_demo_product()["model"]
        try:
            for start in range(0, len(missing), _DEVICES_CREATED_PER_SAVE):
                batch = missing[start : start + _DEVICES_CREATED_PER_SAVE]
                await _create_devices(api, model, batch, keys)
                _save_keys(directory, keys)
                created(len(keys))
        finally:
            _save_keys(directory, keys)
    return {sn: keys[sn] for sn in serials}


async def _create_devices(
    api: OpenApiClient, model: str, sns: list[str], keys: dict[str, str]
) -> None:
    async def create(sn: str) -> None:
        device_id = await api.ensure_device(sn, f"Simulated {sn[-9:].lstrip('0')}", model)
        _, keys[sn] = await api.issue_credentials(device_id)

    await gather_limited(_CONCURRENT_REQUESTS, (partial(create, sn) for sn in sns))


def _load_keys(directory: Path) -> dict[str, str]:
    path = directory / KEYS_FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise LauncherError(f"cannot read {path}: {error}") from error


def _save_keys(directory: Path, keys: dict[str, str]) -> None:
    write_private(directory / KEYS_FILE_NAME, msgspec.json.encode(keys))


_QOS = 1
_ACK_SECONDS = 30.0
_MAX_CONCURRENT_CONNECTS = 50
_PLAIN_LINE_SECONDS = 5.0


class SimulationCounters(Protocol):
    """Counters of a simulation."""

    def format_activity(self, seconds: float) -> str:
        """Return the activity in the last `seconds` seconds."""

    def format_totals(self) -> str:
        """Return a line with the totals."""


@dataclass
class DeviceCounters:
    """Counters of simulated devices."""

    connected: int = 0
    sent: int = 0
    acknowledged: int = 0
    errors: int = 0
    last_error: str = ""
    started: float = field(default_factory=time.monotonic)
    _before: tuple[int, int] = (0, 0)

    def count_error(self, error: Exception) -> None:
        """Count a broken connection or a report without acknowledgement."""
        self.errors += 1
        self.last_error = str(error) or type(error).__name__

    def format_activity(self, seconds: float) -> str:
        """Return the connections, errors, and rates of the `seconds` since the last call."""
        before, self._before = self._before, (self.sent, self.acknowledged)
        return (
            f"{self.connected} connected  {(self.sent - before[0]) / seconds:.0f}/s sent  "
            f"{(self.acknowledged - before[1]) / seconds:.0f}/s acknowledged  "
            f"{self.errors} errors{f' ({self.last_error})' if self.last_error else ''}"
        )

    def format_totals(self) -> str:
        """Return the totals and the rate."""
        seconds = time.monotonic() - self.started
        return (
            f"{self.sent} reports sent, {self.acknowledged} acknowledged, {self.errors} errors "
            f"in {seconds:.1f} s ({self.acknowledged / seconds:.1f}/s)"
        )


async def simulate(options: Namespace) -> None:
    """Simulate devices until Ctrl-C or for `duration` seconds."""
    states.require_owner(options.data)
    _, addresses = states.load_with_addresses(options.data)
    console = Console()
    async with open_platform(options.data) as api:
        keys = await ensure_devices(
            api, options.data, options.devices, lambda n: console.print(f"{n} devices exist")
        )
    counts = DeviceCounters()
    servers = parse_mqtt_urls(addresses.mqtt_url, addresses.ca_file)
    fleet = DeviceFleet(servers, options.devices / options.rate, counts)
    await run_with_display(
        console, counts, [fleet.run_device(sn, key) for sn, key in keys.items()], options.duration
    )


async def run_with_display(
    console: Console,
    counts: SimulationCounters,
    jobs: Iterable[Coroutine[Any, Any, None]],
    seconds: float | None,
) -> None:
    """Run `jobs` until Ctrl-C or for `seconds`, and show the counters."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        async with _display(console, counts):
            await _wait_for_stop(seconds, tasks)
    finally:
        await cancel_and_wait(*tasks)
        console.print(counts.format_totals(), soft_wrap=True, highlight=False)


async def _wait_for_stop(duration: float | None, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait for Ctrl-C, `duration` seconds or the end of a task; raise a task's error."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    for task in tasks:
        task.add_done_callback(lambda _: stop.set())
    await wait_for_event(stop, duration)
    for task in tasks:
        if task.done():
            task.result()


class DeviceFleet:
    """The simulated devices and their connections, spread over the MQTT servers."""

    def __init__(
        self, servers: Iterable[Mapping[str, Any]], interval: float, counts: DeviceCounters
    ) -> None:
        self._servers = itertools.cycle(servers)
        self._interval = interval
        self._counts = counts
        self._gate = asyncio.Semaphore(_MAX_CONCURRENT_CONNECTS)
        self._tsl = read_demo_product()["tsl"]

    async def run_device(self, sn: str, key: str) -> None:
        """Run one device: connect, report every `interval` seconds, reconnect."""
        rng = random.Random(sn)  # noqa: S311 - no secret; a device measures the same each run
        device = DemoDevice(sn, self._tsl, rng)
        backoff = RestartBackoff()
        while True:
            started = time.monotonic()
            try:
                async with self._connect(sn, key) as client:
                    await self._report_regularly(client, device, rng.random() * self._interval)
            except aiomqtt.MqttError as error:
                self._counts.count_error(error)
                await asyncio.sleep(backoff.next_pause_seconds(time.monotonic() - started))

    @contextlib.asynccontextmanager
    async def _connect(self, sn: str, key: str) -> AsyncIterator[aiomqtt.Client]:
        server = next(self._servers)
        client = aiomqtt.Client(
            **server,
            username=sn,
            password=key,
            identifier=sn,
            timeout=_ACK_SECONDS,
        )
        async with contextlib.AsyncExitStack() as stack:
            async with self._gate:
                await stack.enter_async_context(client)
            self._counts.connected += 1
            try:
                yield client
            finally:
                self._counts.connected -= 1

    async def _report_regularly(
        self, client: aiomqtt.Client, device: DemoDevice, first: float
    ) -> None:
        """Report at fixed times, so that a slow acknowledgement does not lower the rate."""
        due = time.monotonic() + first
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due = max(due + self._interval, time.monotonic())
            body = json.dumps({"properties": device.measure()})
            self._counts.sent += 1
            await client.publish(f"thing/{device.sn}/up/report", body, qos=_QOS)
            self._counts.acknowledged += 1


@contextlib.asynccontextmanager
async def _display(console: Console, counts: SimulationCounters) -> AsyncIterator[None]:
    """Show the rates: one live line on a terminal, else a line every few seconds."""
    with contextlib.ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, auto_refresh=False, transient=True))
        showing = asyncio.create_task(_refresh_display(console, live, counts))
        try:
            yield
        finally:
            showing.cancel()


async def _refresh_display(console: Console, live: Live | None, counts: SimulationCounters) -> None:
    pause = 1.0 if live else _PLAIN_LINE_SECONDS
    while True:
        await asyncio.sleep(pause)
        line = counts.format_activity(pause)
        if live:
            live.update(line, refresh=True)
        else:
            console.print(line, soft_wrap=True, highlight=False)
