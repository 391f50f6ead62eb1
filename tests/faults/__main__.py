"""`make test-faults`: every fault on a cluster under load, and one table of what came of it.

Partitions and full disks need root, for network namespaces and small disks of their own; clocks
that jump need that and a C compiler. Without it they are left out, and the table says so.
"""

import argparse
import asyncio
import contextlib
import os
import platform as machine
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deploy.local.process import PROJECT_ROOT
from tests.e2e.callers import Application, Console
from tests.e2e.platform import MODEL, PRODUCT
from tests.faults.catalogue import Fault, Harm, catalogue
from tests.faults.cluster import Cluster
from tests.faults.load import WINDOW, Load, settled
from tests.faults.operations import Operations, Verdict
from tests.faults.places import HAS_CLOCK, Places
from tests.faults.writing import Writers

PAGE = Path("docs", "explanation", "faults.md")
PATIENCE = 120.0
"""Seconds in which it serves again after any fault, on a busy machine."""
CROWD = 9
"""Devices of the crowd for each of the usual load."""

NONE = "-"


def print_line(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@dataclass
class Row:
    """A row of the table."""

    fault: str
    operations: Operations = field(default_factory=Operations)
    verdict: Verdict = field(default_factory=Verdict)
    seconds: float | None = None
    slowest: str = ""
    """The writer whose acknowledgements resumed last."""
    note: str = ""

    def cells(self) -> list[str]:
        """Return the printed cells."""
        counts = self.operations
        if not counts.invoked:
            return [self.fault, *(NONE,) * 5, self.note]
        return [
            self.fault,
            f"{counts.invoked:,}",
            f"{counts.acknowledged:,}",
            f"{counts.unknown:,}",
            str(len(self.verdict.lost)),
            str(len(self.verdict.doubled)),
            " ".join(filter(None, (self._served, self.note))),
        ]

    @property
    def _served(self) -> str:
        return NONE if self.seconds is None else f"{self.seconds:.1f} ({self.slowest})"

    @property
    def good(self) -> bool:
        """Return whether nothing is lost or doubled, and the platform serves."""
        return not (self.verdict.lost or self.verdict.doubled or self.note.startswith("failed"))


class Trial:
    """One fault under load."""

    def __init__(self, cluster: Cluster, application: Application, console: Console) -> None:
        self._cluster = cluster
        self._application = application
        self._load = Load(cluster, application)
        self._crowd = Load(cluster, application)
        self._writers = Writers(application, console)
        self._serving: asyncio.Task[tuple[float, str]] | None = None

    async def run(self, fault: Fault, seconds: float) -> Row:
        """Cause a fault under load, and compare the promised with the actual data."""
        await self._writers.start()
        await self._writers.device.http(
            "POST", "report", {"properties": {"counter": 0}}, wait="stored"
        )
        before = await settled(self._cluster)
        row = Row(fault.name)
        with _noted(row):
            async with self._writers.running(), self._load.running(1):
                await self._writers.go_on(PATIENCE)
                await fault.work(Harm(self._cluster, self._strike, seconds, self._press))
                assert self._serving is not None
                row.seconds, row.slowest = await self._serving
                await self._cluster.whole()
                await self._goes_on()
                for device in self._load.connected:
                    await device.becomes("ONLINE", PATIENCE)
            for device in self._load.connected:
                await device.becomes("OFFLINE", PATIENCE)
        for one in (self._load.operations, self._crowd.operations, self._writers.operations):
            row.operations.add(one)
        with _noted(row):
            await self._judge(row, before)
        return row

    async def _judge(self, row: Row, before: dict[str, int]) -> None:
        row.verdict.add(await self._load.judge())
        row.verdict.add(await self._crowd.judge())
        device, prefix = self._writers.device, self._writers.prefix
        row.verdict.add(await self._writers.judge(*await self._cluster.counted(device.id, prefix)))
        now = await settled(self._cluster)
        if now["accepted"] != now["stored"] + now["rejected"]:
            row.verdict.lost.append(f"the ledger: {now}")
        for name in ("stored", "rejected"):
            there = getattr(self._load, name) + getattr(self._crowd, name)
            if now[name] - before[name] < there:
                row.verdict.lost.append(f"the ledger: {there} are {name}, it says {now}")

    def _strike(self) -> None:
        self._serving = asyncio.create_task(self._measure())

    async def _measure(self) -> tuple[float, str]:
        """Seconds until the last is given acknowledgements again, and who that is."""
        began = time.monotonic()

        async def after(work: Awaitable[None], name: str) -> tuple[float, str]:
            await work
            return time.monotonic() - began, name

        ways = dict.fromkeys(self._load.ways.values())
        reporting = [after(self._load.goes_on(PATIENCE, WINDOW, way), way) for way in ways]
        writing = [after(self._writers.go_on(PATIENCE, one), one) for one in self._writers.names]
        return max(await asyncio.gather(*reporting, *writing))

    async def _goes_on(self) -> None:
        await self._measure()

    async def _press(self, seconds: float) -> None:
        async with self._crowd.running(CROWD):
            await asyncio.sleep(seconds)


@contextlib.contextmanager
def _noted(row: Row) -> Iterator[None]:
    """Record an error inside as the note of the row."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - the table shows it
        traceback.print_exc()
        row.note = row.note or f"failed: {' '.join(str(error).split())[:200]}"


@contextlib.asynccontextmanager
async def running(*, places: bool) -> AsyncIterator[Cluster]:
    """Run a cluster, each member in its own namespace where that is possible."""
    root = Path(tempfile.mkdtemp(prefix="thingway-faults-"))
    with contextlib.ExitStack() as stack:
        made = Places(root / "data") if places else None
        options: list[str] = []
        if made is not None:
            stack.enter_context(made.disks())
            first = Cluster(root / "data", [], None)  # MongoDB makes its first user on loopback
            stack.callback(first.stop)
            await asyncio.to_thread(first.start)
            first.stop()
            stack.enter_context(made.made())
            options = made.options()
        cluster = Cluster(root / "data", options, made)
        stack.callback(cluster.stop)
        await asyncio.to_thread(cluster.start)
        yield cluster
    print_line(f"Logs of the cluster: {root}")


async def attempt(cluster: Cluster, fault: Fault, seconds: float) -> Row:
    """Return the row of a fault; its note says why the platform did not survive."""
    application, console = cluster.application(), cluster.console()
    row = Row(fault.name)
    try:
        with _noted(row):
            await cluster.whole()
            await application.data("PUT", f"/products/{MODEL}", PRODUCT)
            row = await Trial(cluster, application, console).run(fault, seconds)
    finally:
        await application.close()
        await console.close()
    return row


def _left_out(fault: Fault, *, places: bool) -> str:
    """Return why a fault cannot be tried here; empty when it can."""
    if (fault.places or fault.clock) and not places:
        return "not tried: needs root"
    return "not tried: needs a C compiler" if fault.clock and not HAS_CLOCK else ""


async def campaign(given: argparse.Namespace) -> list[Row]:
    """Return all rows; print and write each one when it is done."""
    words = [word.lower() for word in given.words]
    wanted = [one for one in catalogue() if _asked(one.name.lower(), words)]
    places = os.geteuid() == 0 and not given.loopback
    rows = {one.name: Row(one.name, note=_left_out(one, places=places)) for one in wanted}
    todo = [one for one in wanted if not rows[one.name].note]
    for one in todo:
        rows[one.name].note = "not reached"
    async with running(places=places) as cluster:
        for fault in todo:
            rows[fault.name] = await attempt(cluster, fault, given.seconds)
            _print_row(rows[fault.name])
            if given.output:
                given.output.write_text(document([*rows.values()], given.seconds))
    return [*rows.values()]


def _asked(name: str, words: list[str]) -> bool:
    return not words or any(word in name for word in words)


def _print_row(row: Row) -> None:
    print_line(f"{datetime.now(UTC):%H:%M:%S} {' | '.join(row.cells())}")
    for kind, found in (("lost", row.verdict.lost), ("doubled", row.verdict.doubled)):
        for one in found[:20]:
            print_line(f"    {kind}: {one}")


HEAD = ["fault", "operations", "acknowledged", "unknown", "lost", "doubled", "serves again (s)"]


def table(rows: list[Row]) -> str:
    """Return the rows as Markdown."""
    lines = [HEAD, ["---", *("---:",) * 6], *(row.cells() for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def document(rows: list[Row], seconds: float) -> str:
    """Return the page of the last run."""
    text = Path(__file__).with_name("faults.md").read_text()
    cores, load = os.cpu_count(), os.getloadavg()[2]
    where = (
        f"{datetime.now(UTC):%Y-%m-%d}, {cores} processors, Python {machine.python_version()}, "
        f"load average {load:.0f} at its end"
    )
    return text.format(where=where, seconds=f"{seconds:g}", table=table(rows))


def main() -> int:
    """Run, print, and write the page row by row."""
    parser = argparse.ArgumentParser(prog="make test-faults", description=__doc__)
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help='faults whose name has one, e.g. "kill partition"'
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="that stops, partitions and the like last"
    )
    parser.add_argument("--loopback", action="store_true", help="no namespaces, also as root")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help=f"where the page is written ({PAGE} by default)"
    )
    given = parser.parse_args()
    if not given.words:
        given.output = given.output or PROJECT_ROOT / PAGE
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was made is taken away
    rows = asyncio.run(campaign(given))
    print_line("\n" + table(rows))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
