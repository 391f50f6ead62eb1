"""Child processes that never outlive the launcher and end gracefully."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.platform.services import TUNABLE_VARIABLES

PROJECT_ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
_LIBC = ctypes.CDLL(None, use_errno=True)
_INHERITED_VARIABLES = ("PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR")
_LOCALE_PREFIX, _TELEMETRY_PREFIX = "LC_", "OTEL_"


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """How to start a child process."""

    name: str
    argv: Sequence[str]
    stage: int
    """Lower stages start first and end last."""
    environment: Mapping[str, str]
    grace: float = 10.0
    """Seconds between SIGTERM and SIGKILL."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """Explanations of exit codes of the process."""
    forked: bool = False
    """Whether the fork server may run `argv`, which is `python -m MODULE`."""


def system_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the system, without those that may be secret."""
    return {
        name: value
        for name, value in environ.items()
        if name in _INHERITED_VARIABLES or name.startswith(_LOCALE_PREFIX)
    }


def inheritable_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the launcher's environment variables that children may see."""
    settings = {
        name: value
        for name, value in environ.items()
        if name in TUNABLE_VARIABLES or name.startswith(_TELEMETRY_PREFIX)
    }
    return system_environment(environ) | settings


def open_log(log: Path) -> int:
    """Return a descriptor that appends to a log, which only its owner can read."""
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


async def spawn(
    spec: ProcessSpec,
    log: Path,
    keep_open: Collection[int],
    stdin: int = asyncio.subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    """Start a child in its own session, without Ctrl-C; append its output to `log`."""
    handle = open_log(log)
    try:
        return await asyncio.create_subprocess_exec(
            *spec.argv,
            stdin=stdin,
            stdout=handle,
            stderr=handle,
            env=dict(spec.environment),
            cwd=PROJECT_ROOT,
            start_new_session=True,
            pass_fds=tuple(keep_open),
            preexec_fn=build_end_with_process(os.getpid()),
        )
    finally:
        os.close(handle)


class ForkedProcess:
    """A process that the fork server forked, as a child of this process."""

    def __init__(self, pid: int) -> None:
        """Watch `pid`, which must be a child of this process."""
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._handle = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._handle, self._reap)

    async def wait(self) -> int:
        """Return the exit code when the process has ended."""
        await self._ended.wait()
        if self.returncode is None:
            raise AssertionError("an ended process has an exit code")
        return self.returncode

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()


ChildProcess = asyncio.subprocess.Process | ForkedProcess


async def terminate(process: ChildProcess, grace: float) -> bool:
    """Send SIGTERM to the child's process group, and SIGKILL after `grace` seconds.

    Returns whether the child ended before the SIGKILL.
    """
    signal_group(process.pid, signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), grace)
    except TimeoutError:
        signal_group(process.pid, signal.SIGKILL)
        await process.wait()
        return False
    return True


def describe_exit(code: int) -> str:
    """Return how a child ended, e.g. `ended with exit code 1`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def end_with_parent() -> None:
    """Make the kernel send SIGTERM to this process when its parent ends."""
    build_end_with_process(os.getppid())()


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a child and its children; do nothing if they have ended."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def build_end_with_process(parent: int) -> Callable[[], None]:
    """Return a function that makes its calling process end when process `parent` ends.

    The C library is loaded before the fork, so that only a system call remains after it.
    """
    if sys.platform != "linux":
        return lambda: None

    def request_death_signal() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return request_death_signal


@contextlib.contextmanager
def adopt_orphans() -> Iterator[None]:
    """Adopt descendants that become orphans inside the block (Linux)."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def name_process(name: str, argv: Sequence[str]) -> None:
    """Make `ps` show this process as `name` with the arguments `argv` (Linux).

    The arguments replace those of the program, whose length limits them (proc(5), `arg_start`).
    """
    _LIBC.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = "\0".join(argv).encode()[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
