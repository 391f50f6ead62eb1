"""What a run of the tests costs: its slowest tests, and the processor time of all its processes.

A process that is waited for is counted by the kernel with the one that waits. The children of a
server that is killed are not: `note` counts them before. What still runs is read at the end.
"""

import json
import os
import resource
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.servers import host_pids

_TICKS = os.sysconf("SC_CLK_TCK")
_SLOWEST = 10
_noted: list[Path] = []


def count_in(directory: Path) -> None:
    """Name the directory of the run, in which its processes note what `note` counts."""
    _noted[:] = [directory / "processor-seconds"]


def note(pid: int) -> None:
    """Count what is below a process that is about to be killed: nobody will wait for that.

    When the directory of the run is gone, everything is counted.
    """
    for path in _noted:
        with suppress(FileNotFoundError), path.open("a") as out:
            out.write(f"{below(pid)}\n")


def own() -> float:
    """Return the seconds of this process and of the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def below(*ancestors: int) -> float:
    """Return the seconds of what runs below `ancestors`, and of what that has waited for."""
    children: dict[int, list[int]] = defaultdict(list)
    seconds: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue  # it has ended meanwhile
        pid, fields = int(path.parent.name), text.rpartition(")")[2].split()
        children[int(fields[1])].append(pid)
        seconds[pid] = sum(map(int, fields[11:15])) / _TICKS
    found = [child for ancestor in ancestors for child in children[ancestor]]
    for pid in found:
        found += children[pid]
    return sum(seconds[pid] for pid in found)


class Costs:
    """Prints the slowest tests and the processor time of a run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the phases of a test."""
        self._seconds[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print both; workers have ended by now."""
        terminalreporter.section("costs")
        for name, seconds in self._seconds.most_common(_SLOWEST):
            terminalreporter.write_line(f"{seconds:8.1f} s  {name}")
        killed = [path.read_text().split() for path in _noted if path.exists()]
        total = own() + sum(float(line) for lines in killed for line in lines)
        total += below(os.getpid(), *host_pids(self._directory))
        terminalreporter.write_line(f"{total:8.1f} s  of processor time, servers included")


class CostOfEachFile:
    """Appends a line of JSON to a file for each file of tests: what it took in this process.

    Servers that workers share are counted with the worker that started them: `-n 0` is exact.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._tests = 0
        self._before = own() + below(os.getpid())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        """Count a test with its fixtures, and what its servers do meanwhile."""
        try:
            return (yield)
        finally:
            self._tests += 1
            if nextitem is None or nextitem.path != item.path:
                self._write(str(item.path.relative_to(item.config.rootpath)))

    def _write(self, name: str) -> None:
        mine, others = own(), below(os.getpid())
        seconds = round(mine + others - self._before, 2)
        row = {"file": name, "tests": self._tests, "seconds": seconds}
        with self._out.open("a") as out:
            out.write(f"{json.dumps(row)}\n")
        self._tests, self._before = 0, own() + others
