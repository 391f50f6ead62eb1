"""Worker processes as their owner sees them: started, asked, ended."""

import asyncio
import contextlib
import os
import resource
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from libs.common.sandbox.confine import HEADER

LARGEST_ANSWER = 8 * 1024 * 1024
"""Bytes of an answer that are read at most, before anything is decoded."""
_DISCARDED = 64 * 1024
"""Bytes that are discarded at a time."""
_ROOT = Path(__file__).parents[3]
_BEGIN = "import sys; sys.path.insert(0, {root!r}); from {module} import main; main({arguments})"


async def start_worker(module: str, *arguments: int, largest: int) -> Process:
    """A process that runs `main(*arguments)` of a module, with nothing in its environment.

    `largest` is the length of the longest frame that it may write.
    """
    given = ", ".join(map(str, arguments))
    text = _BEGIN.format(root=str(_ROOT), module=module, arguments=given)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", text),
        stdin=PIPE,
        stdout=PIPE,
        env={},
        cwd="/",
        start_new_session=True,
        limit=2 * largest,
    )


async def ask_worker(process: Process, request: bytes) -> bytes:
    """Return the frame that answers one.

    Raises `OSError`, also for an answer of more than `LARGEST_ANSWER` bytes, and
    `asyncio.IncompleteReadError`.
    """
    source, target = _pipes(process)
    target.write(HEADER.pack(len(request)) + request)
    await target.drain()
    (size,) = HEADER.unpack(await source.readexactly(HEADER.size))
    if size > LARGEST_ANSWER:
        raise OSError(f"the worker answers {size} bytes")
    return await source.readexactly(size)


async def ask_once(process: Process, request: bytes, largest: int) -> bytes:
    """Return all that a process answers before it ends; raise `OSError` beyond `largest` bytes."""
    source, target = _pipes(process)
    with contextlib.suppress(ConnectionError):  # it may end before it has read everything
        target.write(request)
        await target.drain()
        target.close()
    try:
        await source.readexactly(largest + 1)
    except asyncio.IncompleteReadError as error:
        await process.wait()
        return error.partial
    raise OSError(f"the process answers more than {largest} bytes")


def _pipes(process: Process) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if process.stdin is None or process.stdout is None:
        raise OSError("the worker has no pipes")
    return process.stdout, process.stdin


def memory_of(process: Process) -> int:
    """Return how many bytes of memory a process uses (Linux; elsewhere 0)."""
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    return 0


def kill_worker(process: Process) -> None:
    """End a worker with the run that it has in hand."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def wait_killed(process: Process) -> None:
    """Wait until a killed process has ended, and discard what it had written.

    asyncio waits for the end of its pipes, which nobody sees while unread data fills a buffer.
    """
    with contextlib.suppress(RuntimeError):  # its owner reads it, until the process has ended
        while process.stdout is not None and await process.stdout.read(_DISCARDED):
            pass
    await process.wait()
