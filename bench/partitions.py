"""Benchmark of two partitions on two ingest processes, against one on one.

On machines with fewer than eight processors, each ingest process gets a share of one (a control
group). Otherwise servers and processes would compete for processors, while the benchmark measures
whether the second process adds throughput.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pymongo import MongoClient

from bench.ingest import DEVICES, encoded, prepare
from bench.stack import Stack, ready, stack
from bench.table import Row, median_value
from libs.common.bus import UPLINK, Bus, OutgoingMessage
from libs.common.bus.streams import UPLINK_PARTITION_CONFIGS
from libs.common.bus.subjects import partitioned_uplink_subject, uplink_subject
from libs.common.clock import now_ms

REPORTS, ROUNDS, BAR = 20_000, 3, 1.7
BATCH = 500
"""Messages per batch: few, so that no process idles while another has the last ones."""
ENOUGH_PROCESSORS = 8
"""Number of processors that needs no control groups."""
SHARE = 0.1
PERIOD = 20_000
"""Scheduling period in µs."""
GROUPS = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def limited_processes(pids: list[int]) -> Iterator[None]:
    """Give each process `SHARE` of a processor; raise `OSError` if not permitted."""
    groups = []
    try:
        for pid in pids:
            parent = GROUPS / "cpu" if (GROUPS / "cpu").is_dir() else GROUPS
            group = parent / f"thingway-bench-{pid}"
            group.mkdir()
            groups.append(group)
            quota = f"{PERIOD * SHARE:.0f}"
            if (group / "cpu.max").exists():
                (group / "cpu.max").write_text(f"{quota} {PERIOD}")
            else:
                (group / "cpu.cfs_period_us").write_text(f"{PERIOD}")
                (group / "cpu.cfs_quota_us").write_text(quota)
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for group in groups:
            for task in (group / "cgroup.procs").read_text().split():
                (group.parent / "cgroup.procs").write_text(task)
            group.rmdir()


async def rate(servers: Stack, partitions: int) -> float:
    """Return the median reports per second of one process per partition."""
    given = {"THINGWAY_UPLINK_PARTITIONS": str(partitions), "THINGWAY_INGEST_BATCH": str(BATCH)}
    started = [servers.start("services.device.ingest_main", **given) for _ in range(partitions)]
    children = [child for child, _ in started]
    for _, port in started:
        await ready(port)
    bus = await Bus.connect(servers.nats_url, name="bench")
    try:
        with limited_processes([child.pid for child in children] if needs_shares() else []):
            rates = [await _round(bus, children, partitions) for _ in range(ROUNDS + 1)]
    finally:
        await bus.drain()
        for child in children:
            child.terminate()
            await asyncio.to_thread(child.wait)
    return median_value(rates[1:])


def needs_shares() -> bool:
    """Return whether there are too few processors for all processes."""
    return (os.cpu_count() or 1) < ENOUGH_PROCESSORS


async def _round(bus: Bus, children: list[subprocess.Popen[bytes]], partitions: int) -> float:
    for child in children:
        child.send_signal(signal.SIGSTOP)
    await bus.publish(
        [
            OutgoingMessage(_subject(number % DEVICES, partitions), body)
            for number, body in enumerate(islice(encoded(now_ms()), REPORTS))
        ]
    )
    began = time.perf_counter()
    for child in children:
        child.send_signal(signal.SIGCONT)
    streams = [UPLINK, *list(UPLINK_PARTITION_CONFIGS)[: partitions if partitions > 1 else 0]]
    for stream in streams:
        while (await bus.js.stream_info(stream)).state.messages:
            await asyncio.sleep(0.05)
    return REPORTS / (time.perf_counter() - began)


def _subject(device: int, partitions: int) -> str:
    sn = f"BENCH{device}"
    if partitions == 1:
        return uplink_subject(sn, "report")
    return partitioned_uplink_subject(
        sn, "report", device % partitions
    )  # nats-server maps by the SN


async def measure(servers: Stack) -> Row:
    """Compare one partition with two."""
    client: MongoClient[dict[str, object]] = MongoClient(servers.mongo_url)
    child, port = servers.start("services.device.ingest_main")
    await ready(port)  # creates the indexes
    child.terminate()
    await asyncio.to_thread(child.wait)
    prepare(client["bench"])
    client.close()
    return compare("ingest: reports/s", await rate(servers, 1), await rate(servers, 2))


def compare(what: str, single: float, two: float) -> Row:
    """Return the row of a rate with one and with two partitions and processes."""
    share = f", each with {SHARE:.0%} of a processor" if needs_shares() else ""
    return Row(
        f"{what}, two partitions on two processes{share}",
        f"{two:,.0f}",
        f"{single:,.0f} one on one",
        two / single,
        f">= {BAR:.1f}",
        two / single >= BAR,
    )


async def run() -> list[Row]:
    """Start the servers, measure, stop them."""
    async with stack() as servers:
        return [await measure(servers)]
