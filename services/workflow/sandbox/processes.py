"""Our worker processes for JavaScript and CEL: started, given work, replaced when need be."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Self

from services.workflow.sandbox.limits import CodeFailed, Limits
from services.workflow.sandbox.worker import GRACE, HEADER, SECONDS

log = logging.getLogger(__name__)

_ROOT = Path(__file__).parents[3]
_BEGIN = (
    "import sys; sys.path.insert(0, {root!r}); "
    "from services.workflow.sandbox.worker import main; main({memory}, {output})"
)
LATE = 2.0
"""Seconds beyond a run's own after which its worker is taken for lost: the kernel should have
ended the run long before."""


class Processes:
    """A fixed number of workers; a run waits for one that is idle."""

    def __init__(self, count: int, limits: Limits) -> None:
        self._count = count
        self._limits = limits
        self._idle: asyncio.Queue[Process | None] = asyncio.Queue()
        self._alive: set[Process] = set()

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            self._idle.put_nowait(await self._start())
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in list(self._alive):
            await self._end(process)

    async def ask(self, request: bytes, seconds: float) -> bytes:
        """The answer of a worker; raise `CodeFailed` when there is none."""
        process = await self._idle.get()
        spare: Process | None = None
        try:
            if process is None or process.returncode is not None:
                process = await self._start()
            async with asyncio.timeout(seconds + GRACE + LATE):
                answer = await _exchange(process, SECONDS.pack(seconds) + request)
            spare = process
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            log.warning("a sandbox worker was lost: %s", type(error).__name__)
            raise CodeFailed("was ended with its process") from error
        finally:
            if spare is None and process is not None:
                _kill(process)
                self._alive.discard(process)
            self._idle.put_nowait(spare)
        return answer

    async def _start(self) -> Process:
        limits = self._limits
        text = _BEGIN.format(root=str(_ROOT), memory=limits.memory, output=limits.output)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", text),
            stdin=PIPE,
            stdout=PIPE,
            env={},
            cwd="/",
            start_new_session=True,
            limit=2 * limits.output,
        )
        self._alive.add(process)
        return process

    async def _end(self, process: Process) -> None:
        self._alive.discard(process)
        _kill(process)
        await process.wait()


async def _exchange(process: Process, request: bytes) -> bytes:
    if process.stdin is None or process.stdout is None:
        raise OSError("the worker has no pipes")
    process.stdin.write(HEADER.pack(len(request)) + request)
    await process.stdin.drain()
    (size,) = HEADER.unpack(await process.stdout.readexactly(HEADER.size))
    return await process.stdout.readexactly(size)


def _kill(process: Process) -> None:
    """End a worker with the run that it has in hand."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
