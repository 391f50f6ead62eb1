"""Benchmarks of how modest, legal traffic of a loud tenant delays a quiet tenant.

For each contest the whole platform runs as with `thingway up`. The quiet tenant's probes run alone
first, and then next to the attack, a separate process with idle priority, as if on another machine.
Probes start at a steady pace, whether or not earlier ones have ended.
"""

import asyncio
import contextlib
import multiprocessing
import os
import re
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import nats
from nats.aio.msg import Msg

from bench.platform import Platform
from bench.table import Row
from bench.tenants import Tenant, create_tenant
from deploy.platform import admin
from deploy.platform.state import Addresses

PROBES = int(os.environ.get("BENCH_PROBES", "100"))
WARM_UP_SECONDS = 5.0
"""Seconds of the attack before the first probe."""
PROBE_SECONDS = 60.0
"""Seconds after which a probe counts as lost."""
DRAIN_SECONDS = 60.0
"""Seconds after the attack in which its backlog must be processed."""
MAX_MEMORY = 400
"""MiB of a Python process with its children (PSS)."""
TIMES, P95, WORST = 2, 0.3, 1.0
"""Tolerance of a probe: a factor of the quiet duration, plus seconds for p95 and worst."""


@dataclass
class Arena:
    """A running platform with two tenants."""

    platform: Platform
    quiet: Tenant
    loud: Tenant
    stack: AsyncExitStack
    """Closed at the end of the contest."""
    http: aiohttp.ClientSession

    @property
    def base(self) -> str:
        """The address of the gateway."""
        return str(self.platform.ready["base_url"])

    @property
    def websocket(self) -> str:
        """The address of the console's WebSocket."""
        return self.base.replace("http", "ws", 1) + "/websocket"


async def listen(
    arena: Arena, tenant: Tenant, events: str, handle: Callable[[Msg], Awaitable[None]]
) -> None:
    """Call `handle` with the events of a tenant, as its application, until the contest ends."""
    login = tenant.application
    bus = await nats.connect(
        arena.platform.nats_url,
        user=login.name,
        password=login.key,
        inbox_prefix=f"_INBOX.app.{login.name}".encode(),
    )
    arena.stack.push_async_callback(bus.close)
    await bus.subscribe(f"event.{tenant.name}.{events}", cb=handle)


class Contest(ABC):
    """A contest; its attributes are pickled for the attacking process.

    `prepare` may store other objects in attributes with a leading underscore; the attack does not
    get them.
    """

    name: ClassVar[str]
    """Short description of the attack and the probe."""
    pace: ClassVar[float] = 0.3
    """Seconds between two probes."""
    settings: ClassVar[dict[str, str]] = {}
    """Environment of the platform."""
    devices: ClassVar[tuple[int, int]] = (1, 1)
    """Devices of the quiet and of the loud tenant."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name[0] != "_"}

    @abstractmethod
    async def prepare(self, arena: Arena) -> None:
        """Create what probe and attack need."""

    @abstractmethod
    async def probe(self, arena: Arena, number: int) -> float | None:
        """Run one action of the quiet tenant until its effect is visible.

        Raises if the effect is wrong. Several probes run at a time. The duration is measured around
        the call, unless the probe returns it in seconds.
        """

    @abstractmethod
    async def attack(self, count: "Count") -> None:
        """Run the attack until cancelled; call `count()` for each success."""

    async def begin(self, arena: Arena) -> None:  # noqa: B027 - most need nothing
        """Start listeners of this process, which stay while the attack runs."""

    async def progress(self, arena: Arena) -> int | None:
        """Return how much work of the attacker is done; None uses its own count."""
        return None

    async def pending(self, arena: Arena) -> int:
        """Return how much work of the attacker is pending outside the bus consumers."""
        return 0

    async def check(self, arena: Arena) -> None:  # noqa: B027 - most need nothing
        """Raise if accepted work of the attacker was lost, after its backlog is processed."""


class Count:
    """Counts the results of the attack, for the process that measures."""

    def __init__(self, shared: "Synchronized[int]") -> None:
        self._shared = shared

    def __call__(self, number: int = 1) -> None:
        with self._shared.get_lock():
            self._shared.value += number


@dataclass
class Figures:
    """Durations of the probes, and errors of the lost ones."""

    times: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def at(self, part: float) -> float:
        """Return a quantile in seconds; lost probes count as the longest."""
        ordered = sorted(self.times + [PROBE_SECONDS] * len(self.lost))
        return ordered[min(int(len(ordered) * part), len(ordered) - 1)]

    def __str__(self) -> str:
        parts = " / ".join(f"{self.at(part):.2f}" for part in (0.5, 0.95, 1))
        return f"{parts} s" + (f", {len(self.lost)} lost" if self.lost else "")


async def run_contest(contest: Contest) -> list[Row]:
    """Run a contest."""
    directory = Path(tempfile.mkdtemp(prefix="thingway-bench-"))
    platform = Platform(directory, **contest.settings)
    try:
        platform.wait()
        async with AsyncExitStack() as stack:
            quiet, loud = contest.devices
            http = await stack.enter_async_context(
                aiohttp.ClientSession(platform.ready["base_url"])
            )
            arena = Arena(
                platform,
                await create_tenant(platform, stack, "quiet", quiet),
                await create_tenant(platform, stack, "loud", loud),
                stack,
                http,
            )
            await contest.prepare(arena)
            await contest.begin(arena)
            return await _measure(contest, arena)
    finally:
        platform.stop()
        if os.environ.get("BENCH_KEEP"):
            print(f"kept {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


async def _measure(contest: Contest, arena: Arena) -> list[Row]:
    alone = await _probes(contest, arena, 0)
    memory = _Memory(arena.platform)
    async with memory.watched():
        before = await contest.progress(arena) or 0
        async with _attack(contest) as counted:
            await asyncio.sleep(WARM_UP_SECONDS)
            began, first = time.monotonic(), counted.value
            beside = await _probes(contest, arena, PROBES)
            seconds, done = time.monotonic() - began, counted.value - first
        left, drained = await _drained(contest, arena)
    own = await contest.progress(arena)
    work = done if own is None else own - before
    await contest.check(arena)
    p95, worst = TIMES * alone.at(0.95) + P95, TIMES * alone.at(1) + WORST
    met = beside.at(0.95) <= p95 and beside.at(1) <= worst and not beside.lost
    for error in (alone.lost + beside.lost)[:3]:
        print(f"{contest.name}: {error}")
    size, process = memory.largest
    return [
        Row(
            f"{contest.name}: p50 / p95 / worst",
            str(beside),
            f"{alone} quiet",
            beside.at(0.95) / alone.at(0.95),
            f"p95 <= {p95:.2f}, worst <= {worst:.2f} s",
            met and not alone.lost,
        ),
        Row(
            "… the attacker's own work; seconds until its backlog was done",
            f"{work / seconds:,.1f}/s; {drained:.0f} s",
            f"{left} left" if left else "",
            bar=f"> 0; <= {DRAIN_SECONDS:.0f} s",
            ok=work > 0 and not left,
        ),
        Row(
            "… largest Python process with its children, MiB",
            f"{size:.0f} ({process})",
            bar=f"<= {MAX_MEMORY}",
            ok=size <= MAX_MEMORY,
        ),
    ]


async def _probes(contest: Contest, arena: Arena, first: int) -> Figures:
    """Start probes at a steady pace and wait for them."""
    figures = Figures()

    async def probe(number: int) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                took = await contest.probe(arena, number)
        except Exception as error:  # noqa: BLE001 - it is shown, and counts as lost
            figures.lost.append(repr(error))
        else:
            figures.times.append(time.perf_counter() - began if took is None else took)

    async with asyncio.TaskGroup() as probes:
        for number in range(first, first + PROBES):
            probes.create_task(probe(number))
            await asyncio.sleep(contest.pace)
    return figures


@asynccontextmanager
async def _attack(contest: Contest) -> AsyncIterator["Synchronized[int]"]:
    context = multiprocessing.get_context("spawn")
    counted = context.Value("q", 0)
    process = context.Process(target=_run_attack, args=(contest, counted), daemon=True)
    process.start()
    try:
        yield counted
        if process.exitcode is not None:
            raise RuntimeError(f"the attack ended by itself: {process.exitcode}")
    finally:
        process.kill()
        await asyncio.to_thread(process.join)


def _run_attack(contest: Contest, counted: "Synchronized[int]") -> None:
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    asyncio.run(contest.attack(Count(counted)))


async def _drained(contest: Contest, arena: Arena) -> tuple[int, float]:
    """Wait until nothing of the attack waits; return the remaining number and the seconds."""
    platform = arena.platform
    addresses = Addresses("", "", platform.nats_url)
    began = time.monotonic()
    operator = await admin.log_in_once(addresses, platform.state["secrets"]["nats.admin"])
    try:
        while True:
            left = await contest.pending(arena)
            for stream in ("UPLINK", "EVENTS"):
                for info in await operator.jetstream().consumers_info(stream):
                    left += (info.num_pending or 0) + (info.num_ack_pending or 0)
            took = time.monotonic() - began
            if not left or took > DRAIN_SECONDS:
                return left, took
            await asyncio.sleep(0.5)
    finally:
        await operator.close()


class _Memory:
    """The largest process tree of the platform's own programs."""

    def __init__(self, platform: Platform) -> None:
        servers = ("mongod", "nats", "redis", "valkey")
        self._pids = {
            name: pid
            for name, pid in platform.ready["pids"].items()
            if not name.startswith(servers)
        }
        self.largest = (0.0, "")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Sample the memory each second during the block."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    async def _watch(self) -> None:
        while True:
            for name, pid in self._pids.items():
                size = await asyncio.to_thread(_tree, pid)
                self.largest = max(self.largest, (size, name))
            await asyncio.sleep(1)


def _tree(pid: int) -> float:
    """Return the proportional memory of a process and its children in MiB."""
    total, waiting = 0.0, [pid]
    while waiting:
        found = waiting.pop()
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{found}/smaps_rollup").read_text()
            total += int((re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE) or [0, 0])[1]) / 1024
            for task in Path(f"/proc/{found}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return total
