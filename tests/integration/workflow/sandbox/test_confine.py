"""What the kernel refuses a process of ours that runs people's code, whatever runs in it."""

import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from libs.common.sandbox.confine import LINUX

ROOT = Path(__file__).parents[4]
PROGRAM = """
import os, signal, socket, sys
from libs.common.sandbox.confine import confine_process
confine_process(32 * 1024**2)
{attempt}
os.write(1, b"still here")
os._exit(0)
"""
FILTERED = LINUX and platform.machine() in ("x86_64", "aarch64")


def confined(attempt: str) -> subprocess.CompletedProcess[bytes]:
    """A process that tries something after it was confined."""
    program = PROGRAM.format(attempt=attempt)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60)


@pytest.mark.skipif(not FILTERED, reason="system calls are filtered on Linux")
@pytest.mark.parametrize(
    "attempt",
    [
        "open('/etc/passwd')",
        "open('/tmp/thingway-escaped', 'w')",
        "os.listdir('/')",
        "os.stat('/')",
        "socket.socket()",
        "socket.socketpair()",
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getppid(), 0)",
        "os.getppid()",
        "os.pipe()",
        "os.dup(1)",
        "os.chdir('/')",
        "os.setuid(0)",
        "os.memfd_create('x')",
        "signal.setitimer(signal.ITIMER_REAL, 0)",
    ],
)
def test_a_system_call_that_is_not_computing_ends_the_process(attempt):
    """Files, sockets, processes, signals."""
    found = confined(attempt)
    assert (found.returncode, found.stdout) == (-signal.SIGSYS, b"")


@pytest.mark.skipif(not LINUX, reason="the size of a process is limited on Linux")
def test_memory_beyond_the_limit_is_refused():
    """The interpreter raises MemoryError."""
    found = confined("try:\n    bytearray(64 * 1024**2)\nexcept MemoryError:\n    os._exit(7)")
    assert found.returncode == 7


def test_computing_goes_on():
    """Computing and writing to open files is allowed."""
    found = confined("sum(len(str(n)) for n in range(100_000))")
    assert (found.returncode, found.stdout) == (0, b"still here")
