"""Child processes that never outlive the launcher and end gracefully."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.platform.services import TUNING

PROJECT_ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1
_INHERITED = ("PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR")
_INHERITED_PREFIXES = ("LC_", "OTEL_")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """How to start a child process."""

    name: str
    argv: Sequence[str]
    stage: int
    """Lower stages start first and end last."""
    environment: Mapping[str, str]
    grace: float = 10.0
    """Seconds between SIGTERM and SIGKILL."""


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the launcher's environment variables that children may see."""
    return {
        name: value
        for name, value in environ.items()
        if name in _INHERITED or name in TUNING or name.startswith(_INHERITED_PREFIXES)
    }


async def spawn(spec: Spec, log: Path, keep_open: Collection[int]) -> asyncio.subprocess.Process:
    """Start a child in its own session, without Ctrl-C; append its output to `log`."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return await asyncio.create_subprocess_exec(
            *spec.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            env=dict(spec.environment),
            cwd=PROJECT_ROOT,
            start_new_session=True,
            pass_fds=tuple(keep_open),
            preexec_fn=end_with_process(os.getpid()),
        )
    finally:
        os.close(handle)


async def terminate(process: asyncio.subprocess.Process, grace: float) -> bool:
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
    end_with_process(os.getppid())()


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a child and its children; do nothing if they have ended."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def end_with_process(parent: int) -> Callable[[], None]:
    """Return a function that makes the calling process end with `parent`.

    The C library is loaded before the fork, so that only a system call remains after it.
    """
    if sys.platform != "linux":
        return lambda: None
    set_option = ctypes.CDLL(None, use_errno=True).prctl

    def tie() -> None:
        set_option(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return tie
