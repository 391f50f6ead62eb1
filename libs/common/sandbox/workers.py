"""Worker processes as their owner sees them: started, asked, ended."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from libs.common.sandbox.frames import HEADER

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
    """The frame that answers one; raise `OSError` and `asyncio.IncompleteReadError`."""
    if process.stdin is None or process.stdout is None:
        raise OSError("the worker has no pipes")
    process.stdin.write(HEADER.pack(len(request)) + request)
    await process.stdin.drain()
    (size,) = HEADER.unpack(await process.stdout.readexactly(HEADER.size))
    return await process.stdout.readexactly(size)


def kill_worker(process: Process) -> None:
    """End a worker with the run that it has in hand."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
