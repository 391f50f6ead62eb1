"""Places for the members of a cluster: a network namespace and small disks for each.

Needs root. Members have the addresses 10.77.N.1, .2 and .3 on a bridge; this machine is .254.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from deploy.platform.state import member_name

MEMBERS = range(1, 4)
DISK_MB = 900
"""Of each MongoDB and each NATS; nats-server is started again when 512 MB of it are free."""
_FILL = "fill"
_COMPILER = shutil.which("cc")
_CLOCK = Path(__file__).with_name("clock.c")
HAS_CLOCK = _COMPILER is not None
"""Whether the services' clock can be set."""


class Places:
    """The namespaces and disks of one cluster."""

    def __init__(self, data: Path) -> None:
        self._data = data
        number = os.getpid() % 250
        self._bridge = f"twbr{number}"
        self._net = f"10.77.{number}"

    def host(self, number: int) -> str:
        """Return the address of a member."""
        return f"{self._net}.{number}"

    def _name(self, number: int) -> str:
        return f"{self._bridge}-{number}"

    def options(self) -> list[str]:
        """Return the options of `tests.faults.up`."""
        options = [
            f"--place={self.host(number)}=ip netns exec {self._name(number)}" for number in MEMBERS
        ]
        return [*options, *(self._clock() if HAS_CLOCK else ())]

    def _clock(self) -> list[str]:
        """Give the services a clock that can be set; return the options for it."""
        library = self._data.parent / "clock.so"
        _run(str(_COMPILER), "-shared", "-fPIC", "-O2", "-o", str(library), str(_CLOCK), "-ldl")
        self.set_clock(0)
        return [f"--services=LD_PRELOAD={library}", f"--services=CLOCK_FILE={self._clock_file}"]

    def set_clock(self, seconds: int) -> None:
        """Set the services' clock ahead by `seconds`."""
        new = self._clock_file.with_suffix(".new")
        new.write_text(f"{seconds}\n")
        new.rename(self._clock_file)

    @property
    def _clock_file(self) -> Path:
        return self._data.parent / "clock"

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        """Create the namespaces, and one for their bridge; remove them afterwards."""
        with contextlib.ExitStack() as stack:
            switch, net = self._bridge, ("ip", "-n", self._bridge)
            _run("ip", "netns", "add", switch)  # a firewall may drop bridged packets
            stack.callback(_run, "ip", "netns", "del", switch)
            _run(*net, "link", "add", switch, "type", "bridge")
            _run(*net, "link", "set", switch, "up")
            _run(
                "ip", "link", "add", switch, "type", "veth", "peer", "name", "host", "netns", switch
            )
            _run(*net, "link", "set", "host", "master", switch, "up")
            _run("ip", "addr", "add", f"{self._net}.254/24", "dev", switch)
            _run("ip", "link", "set", switch, "up")
            for number in MEMBERS:
                name = self._name(number)
                _run("ip", "netns", "add", name)
                stack.callback(_run, "ip", "netns", "del", name)
                peer = ("peer", "name", "eth0", "netns", name)
                _run(*net, "link", "add", name, "type", "veth", *peer)
                _run(*net, "link", "set", name, "master", switch, "up")
                _run("ip", "-n", name, "link", "set", "lo", "up")
                _run("ip", "-n", name, "addr", "add", f"{self.host(number)}/24", "dev", "eth0")
                _run("ip", "-n", name, "link", "set", "eth0", "up")
            yield

    @contextlib.contextmanager
    def disks(self) -> Iterator[None]:
        """Mount a disk for each MongoDB and each NATS; unmount them afterwards."""
        with contextlib.ExitStack() as stack:
            for kind, number in itertools.product(("mongo", "nats"), MEMBERS):
                directory = self._data / member_name(kind, number)
                directory.mkdir(parents=True, exist_ok=True)
                _run("mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(directory))
                stack.callback(_run, "umount", "-l", str(directory))
            yield

    def part(self, number: int) -> None:
        """Separate a member from the two others; clients still reach all."""
        for other in MEMBERS:
            if other != number:
                self._route("add", number, other)

    def heal(self, number: int) -> None:
        """End `part`."""
        for other in MEMBERS:
            if other != number:
                self._route("del", number, other)

    def _route(self, change: str, number: int, other: int) -> None:
        where = ("blackhole", f"{self.host(other)}/32")
        _run("ip", "-n", self._name(number), "route", change, *where)

    def cut(self, number: int, *, off: bool) -> None:
        """Let a member reach nobody, clients neither; or again."""
        state = "down" if off else "up"
        _run("ip", "-n", self._bridge, "link", "set", self._name(number), state)

    def fill(self, kind: str, number: int) -> None:
        """Leave no room on a disk."""
        directory = self._data / member_name(kind, number)
        with (directory / _FILL).open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1024**2))
                file.flush()

    def empty(self, kind: str, number: int) -> None:
        """Make room again."""
        (self._data / member_name(kind, number) / _FILL).unlink(missing_ok=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
