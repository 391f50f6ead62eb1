"""Worker processes: start, request, kill."""

import asyncio
import contextlib
import os
import resource
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from libs.common.sandbox.confine import FRAME_HEADER

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Maximum bytes of an answer, checked before decoding."""
_DISCARD_BYTES = 64 * 1024
"""Bytes that are discarded in one read."""
_ROOT = Path(__file__).parents[3]
_START_CODE = (
    "import sys; sys.path.insert(0, {root!r}); from {module} import main; main({arguments})"
)


async def start_worker(module: str, *arguments: int, largest: int) -> Process:
    """Return a process that runs `main(*arguments)` of a module with an empty environment.

    `largest` is the maximum length of a frame that it writes.
    """
    argument_text = ", ".join(map(str, arguments))
    text = _START_CODE.format(root=str(_ROOT), module=module, arguments=argument_text)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", text),
        stdin=PIPE,
        stdout=PIPE,
        env={},
        cwd="/",
        start_new_session=True,
        limit=2 * largest,
    )


async def send_request(process: Process, request: bytes) -> bytes:
    """Send a request frame and return the answer.

    Raises `OSError`, also if the answer exceeds `MAX_ANSWER_BYTES` bytes, and
    `asyncio.IncompleteReadError`.
    """
    source, target = _pipes(process)
    target.write(FRAME_HEADER.pack(len(request)) + request)
    await target.drain()
    (size,) = FRAME_HEADER.unpack(await source.readexactly(FRAME_HEADER.size))
    if size > MAX_ANSWER_BYTES:
        raise OSError(f"the answer of the worker has {size} bytes, {MAX_ANSWER_BYTES} are allowed")
    return await source.readexactly(size)


async def read_output(process: Process, request: bytes, largest: int) -> bytes:
    """Send a request, and return the complete output of the process.

    Raises `OSError` if the output exceeds `largest` bytes.
    """
    source, target = _pipes(process)
    with contextlib.suppress(ConnectionError):  # it may end before it has read the request
        target.write(request)
        await target.drain()
        target.close()
    try:
        await source.readexactly(largest + 1)
    except asyncio.IncompleteReadError as error:
        await process.wait()
        return error.partial
    raise OSError(f"the output of the process exceeds {largest} bytes")


def _pipes(process: Process) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if process.stdin is None or process.stdout is None:
        raise OSError("the worker has no pipes")
    return process.stdout, process.stdin


def read_process_memory(process: Process) -> int:
    """Return the bytes of memory that a process uses (Linux; 0 elsewhere)."""
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    return 0


def kill_worker(process: Process) -> None:
    """Kill a worker and its child processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def wait_until_killed(process: Process) -> None:
    """Wait until a killed process has ended, and discard its output.

    asyncio waits for the end of its pipes, which is not noticed while unread data fills a buffer.
    """
    with contextlib.suppress(RuntimeError):  # its owner may be reading the output
        while process.stdout is not None and await process.stdout.read(_DISCARD_BYTES):
            pass
    await process.wait()
