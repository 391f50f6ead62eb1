"""Confinement of a process before it runs code of users (Linux; other systems less).

After `confine_process`, a process can compute, use its memory limit, and read and write open files.
It cannot use other files, sockets, processes or signals. A system call that is not listed kills the
process (seccomp-bpf, https://docs.kernel.org/userspace-api/seccomp_filter.html). Even an exploited
fault of the interpreter therefore has no effect. System calls are filtered on x86-64 and ARM64.
"""

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from pathlib import Path

LINUX = sys.platform == "linux"
NICENESS = 19
"""Lowest priority of user code."""

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 38, 22
_SECCOMP_MODE_FILTER = 2
_ALLOW, _KILL_PROCESS = 0x7FFF0000, 0x80000000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4

_ARCHITECTURE_AND_CALLS_BY_MACHINE: dict[str, tuple[int, frozenset[int]]] = {
    # read write close mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn mremap
    # madvise exit futex clock_gettime exit_group getrandom
    "x86_64": (
        0xC000003E,
        frozenset({0, 1, 3, 9, 10, 11, 12, 13, 14, 15, 25, 28, 60, 202, 228, 231, 318}),
    ),
    "aarch64": (
        0xC00000B7,
        frozenset({63, 64, 57, 222, 226, 215, 214, 134, 135, 139, 216, 233, 93, 98, 113, 94, 278}),
    ),
}
"""The architecture in seccomp, and the numbers of the permitted system calls."""
_SETITIMER_NUMBER_BY_MACHINE = {"x86_64": 38, "aarch64": 103}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    if LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def lower_priority() -> None:
    """Give this process the lowest priority.

    Linux may share the processor among sessions first (sched(7), autogroup). A worker has its own
    session, whose priority is therefore lowered too, where autogroups exist.
    """
    os.nice(NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS))


def use_idle_time(pid: int) -> None:
    """Give a process only idle time, so that a processor that it uses counts as idle.

    Low priority does not suffice: if a processor looks busy, other processes queue on the next one.
    """
    if LINUX:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def confine_process(extra_memory: int, *, allow_timer: bool = False) -> None:
    """Restrict this process to `extra_memory` more bytes and its open files.

    `allow_timer` permits the system call `setitimer`.
    """
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))
    with contextlib.suppress(ValueError):  # some systems do not permit to lower it
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if LINUX:
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + extra_memory, in_use + extra_memory))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    if LINUX:
        _allow_only_computing(timer=allow_timer)


def _allow_only_computing(*, timer: bool) -> None:
    machine = platform.machine()
    system_calls = _ARCHITECTURE_AND_CALLS_BY_MACHINE.get(machine)
    if system_calls is None:
        return
    architecture, allowed = system_calls
    if timer:
        allowed |= {_SETITIMER_NUMBER_BY_MACHINE[machine]}
    code = _build_filter(architecture, sorted(allowed))
    program = _Program(len(code) // 8, code)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))


def _build_filter(architecture: int, allowed: list[int]) -> bytes:
    """Return a BPF program that kills the process at any call not in `allowed`."""
    count = len(allowed)
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_AT),
        *((_JUMP_IF_EQUAL, count - at, 0, number) for at, number in enumerate(allowed)),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _prctl(option: int, *values: int) -> None:
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    if _LIBC.prctl(option, *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


_LIBC = ctypes.CDLL(None, use_errno=True)


FRAME_HEADER = struct.Struct(">I")
"""The length of a frame, which precedes it on a pipe."""


def read_frame(source: int) -> bytes | None:
    """Return the next frame of a pipe; None at its end."""
    header = _read_exactly(source, FRAME_HEADER.size)
    return None if header is None else _read_exactly(source, FRAME_HEADER.unpack(header)[0])


def write_frame(target: int, content: bytes) -> None:
    """Write a frame to a pipe."""
    rest = memoryview(FRAME_HEADER.pack(len(content)) + content)
    while rest:
        rest = rest[os.write(target, rest) :]


def _read_exactly(source: int, size: int) -> bytes | None:
    content = b""
    while len(content) < size:
        more = os.read(source, size - len(content))
        if not more:
            return None
        content += more
    return content
